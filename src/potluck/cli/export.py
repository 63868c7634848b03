"""`potluck export`: runs in the formats of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from potluck.cli import text


def export(
    chosen: Annotated[list[Path], typer.Argument(metavar="RUN...", help="folders of runs, or of a comparison")],
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="FORMAT", help="csv, parquet, tensorboard or mlflow; models: safetensors, onnx or c"
        ),
    ],
    out: Annotated[
        str,
        typer.Option(
            "--out", metavar="DIR", help="folder for the files; for mlflow also the address of a tracking server"
        ),
    ] = "export",
    client: Annotated[
        list[str] | None,
        typer.Option("--client", metavar="NAME", help="the model of this client; repeatable (default: all models)"),
    ] = None,
    shared: Annotated[bool, typer.Option("--shared", help="the one model for all clients")] = False,
) -> None:
    """Write runs for other tools: CSV, Parquet, TensorBoard or MLflow. Write their models as safetensors, ONNX or C.

    CSV and Parquet: a table `runs` with one row per run, and a folder per run with the tables of its run.db. In
    TensorBoard and MLflow the step is the round and the time is virtual time. A model takes raw samples: its client's
    standardisation is inside. Each file is compared with PyTorch.
    """
    from potluck.export import export as write
    from potluck.report.reading.folders import runs_in

    for line in write(runs_in(chosen, "export"), to, out, client or [], shared):
        text.line(line)
