"""The section on trade-offs: accuracy against time, energy and bytes, and time against bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from potluck.report.drawing.styles import Style
from potluck.report.drawing.trade_offs import exchange_chart, exchange_title, trade_off_chart
from potluck.report.figures.comparison import Comparison
from potluck.report.figures.exchange import exchange
from potluck.report.figures.pareto import COSTS, in_words, standings
from potluck.report.html.parts import section
from potluck.report.markup import Html, tag
from potluck.report.reading.groups import Group


def trade_offs(found: Comparison, styles: Mapping[str, Style], groups: Sequence[Group] = ()) -> Html | None:
    """The section: three charts and a summary, a fourth chart with `groups`; None with fewer than two finished methods.

    The fourth asks the other way round: what did an accuracy cost? Several runs of one method with other limits of its
    traffic draw there what time costs in bytes.
    """
    known = standings(found)
    if len(known) < 2:
        return None
    charts = [
        tag("figure", tag("figcaption", cost.title), trade_off_chart(known, i, cost, styles))
        for i, cost in enumerate(COSTS)
        if any(one.costs[i] for one in known)  # not so the energy of simulated machines, which is not known
    ]
    paid = exchange(groups)
    if paid is not None:
        charts.append(tag("figure", tag("figcaption", exchange_title(paid)), exchange_chart(paid, styles)))
    about = (
        "Higher is more accurate, further left is cheaper. The line joins the Pareto-optimal methods of each chart. "
        "Whiskers are one standard deviation over seeds. The charts compare means; the table above says which "
        "differences may be noise. Time against bytes: lower and further left is cheaper; a thin line joins the "
        "settings of one method."
    )
    return section(
        "trade-offs",
        "Trade-offs",
        tag("p", in_words(known), f" {paid.in_words}" if paid else None),
        tag("div", charts, class_="charts three"),
        tag("p", about, class_="about"),
    )
