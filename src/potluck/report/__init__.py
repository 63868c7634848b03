"""What runs have to say: a comparison as plain numbers, one offline HTML file, and figures as PDF and PNG.

`compare` is the arithmetic, `write` the page around it, `figures` the same charts for a paper or a slide.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from potluck.report.comparison import Comparison, Difference, Row, Spread, compare
from potluck.report.page import write
from potluck.runs.results import Run

__all__ = ["Comparison", "Difference", "Row", "Spread", "compare", "figures", "write"]


def figures(
    runs: Sequence[Run], folder: Path, formats: Sequence[str] = ("png",), each_method: bool = False
) -> list[Path]:
    """The charts as files, see `potluck.report.png.figures`; none where nothing was evaluated."""
    from potluck.report import png  # Matplotlib takes a second to load, and only this needs it

    return png.figures(runs, folder, formats, each_method)
