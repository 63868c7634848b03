"""`potluck export`: runs in the formats of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from potluck.cli import say
from potluck.cli.reports import chosen_runs


def export(
    chosen: Annotated[list[Path], typer.Argument(metavar="RUN", help="folders of runs, or of a comparison")],
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="csv, parquet, tensorboard or mlflow")],
    out: Annotated[
        str, typer.Option("--out", metavar="DIR", help="a folder; for mlflow also the address of a tracking server")
    ] = "export",
) -> None:
    """Write runs for other tools: tables as CSV or Parquet, TensorBoard's event files, MLflow's tracking.

    Tables: `runs` with a line per run, and a folder per run with the tables of its run.db. In TensorBoard and MLflow
    the step is the round and the time is virtual.
    """
    from potluck.export import export as write

    for line in write(chosen_runs("export", chosen), to, out):
        say.line(line)
