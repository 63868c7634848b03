"""`potluck figures`: the charts of runs as files, for a paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from potluck.cli import text


def figures(
    chosen: Annotated[list[Path], typer.Argument(metavar="RUN...", help="folders of runs, or of a comparison")],
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="folder for the files; created if it is missing")
    ] = Path("figures"),
    formats: Annotated[
        list[str] | None,
        typer.Option("--format", metavar="pdf|png|svg", help="write only this format; repeatable (default: all three)"),
    ] = None,
) -> None:
    """Draw runs for a paper: PDF, PNG and SVG, colour-blind safe, with the names and units of the report.

    Accuracy by rounds, time, bytes and joules; all clients, sorted; the trade-offs. For each method also its clients by
    class, its clusters and the activity of its fleet over time, if the runs recorded them. `comparison.tex` has the
    table of the methods in LaTeX.
    """
    from potluck import report
    from potluck.report.reading.folders import runs_in

    runs = runs_in(chosen, "figures")
    made = report.write_figures(runs, out, formats or ("pdf", "png", "svg"), each_method=True)
    if made:
        made.append(report.write_table(runs, out / "comparison.tex"))
    for path in made:
        text.line(str(path))
    if not made:
        text.line("No figures: nothing has been evaluated yet.")
