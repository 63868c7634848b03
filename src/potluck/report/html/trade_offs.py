"""The section on trade-offs: accuracy against time, energy and bytes."""

from __future__ import annotations

from collections.abc import Mapping

from potluck.report.drawing.styles import Style
from potluck.report.drawing.trade_offs import trade_off_chart
from potluck.report.figures.comparison import Comparison
from potluck.report.figures.pareto import COSTS, in_words, standings
from potluck.report.html.parts import section
from potluck.report.markup import Html, tag


def trade_offs(found: Comparison, styles: Mapping[str, Style]) -> Html | None:
    """The section: three charts and a summary; None with fewer than two finished methods."""
    known = standings(found)
    if len(known) < 2:
        return None
    charts = [
        tag("figure", tag("figcaption", cost.title), trade_off_chart(known, i, cost, styles))
        for i, cost in enumerate(COSTS)
    ]
    about = (
        "Higher is more accurate, further left is cheaper. The line joins the Pareto-optimal methods of each chart. "
        "Whiskers are one standard deviation over seeds. The charts compare means; the table above says which "
        "differences may be noise."
    )
    return section(
        "trade-offs",
        "Trade-offs",
        tag("p", in_words(known)),
        tag("div", charts, class_="charts three"),
        tag("p", about, class_="about"),
    )
