"""What runs have to say: a comparison as plain numbers, one offline HTML file, and PNG figures.

`compare` is the arithmetic, `write` the page around it, `figures` the same charts for a paper or a slide.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from potluck.report.comparison import Comparison, Difference, Row, Spread, compare
from potluck.report.page import write
from potluck.runs.results import Run

__all__ = ["Comparison", "Difference", "Row", "Spread", "compare", "figures", "write"]


def figures(runs: Sequence[Run], folder: Path) -> list[Path]:
    """accuracy_by_{rounds,time,bytes,joules}.png and accuracy_of_clients.png; none where nothing was evaluated."""
    from potluck.report import png  # Matplotlib takes a second to load, and only this needs it

    return png.figures(runs, folder)
