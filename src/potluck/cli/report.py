"""`potluck report`: the report of runs, one HTML file."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from potluck.cli import text
from potluck.errors import BadInput, Code
from potluck.units import plural


def report(
    chosen: Annotated[list[Path], typer.Argument(metavar="RUN...", help="folders of runs, or of a comparison")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="where to write it (default: report.html in the runs' folder)"),
    ] = None,
    pictures: Annotated[
        Path | None, typer.Option("--figures", metavar="DIR", help="also write the charts as PNG files")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="open the report in the browser")] = False,
) -> None:
    """Write the report of one or several runs: one HTML file that needs no network.

    Several runs are compared, and the result is also printed in words. A folder that holds runs stands for all of them.
    """
    import potluck
    from potluck.report import compare, write_figures
    from potluck.report.reading.folders import runs_in

    if out is not None and (out.is_dir() or not out.parent.is_dir()):
        raise BadInput(Code.OUTPUT_PLACE, f"--out: must be a file in a folder that exists, got {str(out)!r}.")
    written = potluck.write_report(*chosen, out=out)
    runs = runs_in(chosen, "report")
    found = compare(runs)
    if found.best is not None:
        text.show(Text(found.sentence))
        for note in found.notes:
            text.show(Text(f"• {note}"))
    text.line(f"report  {written}")
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
        made = write_figures(runs, pictures)
        text.line(f"figures {pictures} ({plural(len(made), 'picture')})")
    if show:
        webbrowser.open(written.resolve().as_uri())
