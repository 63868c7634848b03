"""Reports on runs: a comparison as plain numbers, one offline HTML page, and figures as PDF and PNG.

`compare` is the arithmetic, `write` the page around it, `write_figures` the same charts for a paper or a slide. The
rooms build on each other in this order: `reading` (what runs wrote), `figures` (arithmetic), `drawing` (charts), `html`
(the page). `pictures` holds the charts that belong to one method.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from potluck.metrics import scored_by
from potluck.report.figures.comparison import Comparison, Difference, Row, Spread, compare
from potluck.report.figures.gains import Gains
from potluck.report.figures.pairs import Pair
from potluck.report.figures.power import SeedsNeeded
from potluck.report.figures.ranks import Ranks, over_datasets, ranks
from potluck.report.figures.scores import Scores
from potluck.report.figures.sentence import ALONE
from potluck.report.figures.statistics import Statistics, statistics
from potluck.report.html.page import write
from potluck.runs.results import Run

__all__ = ["Comparison", "Difference", "Gains", "Pair", "Ranks", "Row", "Scores", "SeedsNeeded"]
__all__ += [
    "Spread",
    "Statistics",
    "compare",
    "ranks_over_datasets",
    "statistics_of",
    "write",
    "write_figures",
    "write_rank_plot",
    "write_table",
]


def statistics_of(scores: Scores) -> Statistics:
    """The statistics of any figure by method and seed (and client): another metric, another budget, other systems.

    The method with the highest mean counts as the best. `local`, if it is there, is local training only.
    """
    means = {name: sum(found.values()) / len(found) for name, found in scores.means.items() if found}
    order = sorted(means, key=lambda name: -means[name])
    return statistics(scores, order, order[0] if order else None, ALONE)


def ranks_over_datasets(found: Mapping[str, Comparison | Mapping[str, float]]) -> Ranks | None:
    """Average ranks of methods over datasets: for each dataset its comparison, or accuracies by method.

    Methods are matched by their labels, and ranked by their mean accuracy over seeds. Datasets in which a method is
    missing are left out. None with fewer than two methods, or if no dataset has all of them.
    """
    return ranks(over_datasets({data: _means(one) for data, one in found.items()}), "dataset")


def _means(found: Comparison | Mapping[str, float]) -> Mapping[str, float]:
    if not isinstance(found, Comparison):
        return found
    return {row.method: row.accuracy.mean for row in found.rows if row.finished and row.accuracy}


def write_rank_plot(found: Ranks, path: Path) -> Path:
    """Write the critical-difference plot of average ranks, over seeds or over datasets, as a PNG or PDF file."""
    from potluck.report.drawing import png

    return png.write_rank_plot(found, path)


def write_table(runs: Sequence[Run], path: Path) -> Path:
    """Write the table of the comparison as LaTeX, for a paper."""
    from potluck.files import write_text
    from potluck.report.figures.latex import latex

    found = compare(runs)
    with scored_by(found.metric):
        write_text(path, latex(found))
    return path


def write_figures(
    runs: Sequence[Run], folder: Path, formats: Sequence[str] = ("png",), each_method: bool = False
) -> list[Path]:
    """Write the charts as files, see `potluck.report.drawing.png.figures`; none if nothing was evaluated."""
    from potluck.report.drawing import png  # Matplotlib takes a second to load, and only this needs it

    return png.figures(runs, folder, formats, each_method)
