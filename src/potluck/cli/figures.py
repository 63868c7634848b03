"""`potluck figures`: the standard plots of runs for a paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from potluck.cli import say
from potluck.cli.reports import chosen_runs


def figures(
    chosen: Annotated[list[Path], typer.Argument(metavar="RUN", help="folders of runs, or of a comparison")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="the folder for them; made if need be")] = Path(
        "figures"
    ),
    formats: Annotated[
        list[str] | None, typer.Option("--format", metavar="pdf|png", help="one of the two only; both otherwise")
    ] = None,
) -> None:
    """Draw runs for a paper: PDF and PNG, colour-blind safe, with the names and units of the report.

    Accuracy by rounds, time, bytes and joules; every client, sorted; the trade-offs; and for each method its clients by
    class, its clusters and what its fleet did over time, where the runs have them.
    """
    from potluck import report

    made = report.write_figures(chosen_runs("figures", chosen), out, formats or ("pdf", "png"), each_method=True)
    for path in made:
        say.line(str(path))
    if not made:
        say.line("No figures: nothing has been evaluated yet.")
