"""Reports on runs: a comparison as plain numbers, one offline HTML page, and figures as PDF and PNG.

`compare` is the arithmetic, `write` the page around it, `write_figures` the same charts for a paper or a slide. The
rooms build on each other in this order: `reading` (what runs wrote), `figures` (arithmetic), `drawing` (charts), `html`
(the page). `pictures` holds the charts that belong to one method.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from potluck.report.figures.comparison import Comparison, Difference, Row, Spread, compare
from potluck.report.html.page import write
from potluck.runs.results import Run

__all__ = ["Comparison", "Difference", "Row", "Spread", "compare", "write", "write_figures"]


def write_figures(
    runs: Sequence[Run], folder: Path, formats: Sequence[str] = ("png",), each_method: bool = False
) -> list[Path]:
    """Write the charts as files, see `potluck.report.drawing.png.figures`; none if nothing was evaluated."""
    from potluck.report.drawing import png  # Matplotlib takes a second to load, and only this needs it

    return png.figures(runs, folder, formats, each_method)
