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
    """The section: three charts and what they say; none with fewer than two finished methods."""
    known = standings(found)
    if len(known) < 2:
        return None
    charts = [
        tag("figure", tag("figcaption", cost.title), trade_off_chart(known, i, cost, styles))
        for i, cost in enumerate(COSTS)
    ]
    about = (
        "A method further up is more accurate, further left it costs less. The line joins those that nobody beats in "
        "both; whiskers are one standard deviation over seeds. Means are compared as they stand: the table above says "
        "which differences are noise."
    )
    return section(
        "trade-offs",
        "Trade-offs",
        tag("p", in_words(known)),
        tag("div", charts, class_="charts three"),
        tag("p", about, class_="about"),
    )
