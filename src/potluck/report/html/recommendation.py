"""What a reader in a hurry needs: which method to use and why, and one picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from potluck.metrics import words
from potluck.report.drawing.charts import curve_chart
from potluck.report.drawing.markers import key
from potluck.report.drawing.styles import Style
from potluck.report.drawing.trade_offs import trade_off_chart
from potluck.report.figures.advice import Advice
from potluck.report.figures.comparison import Comparison
from potluck.report.figures.curves import AXES, curves
from potluck.report.figures.pareto import COSTS, standings
from potluck.report.markup import Html, named, prose, tag
from potluck.report.reading.groups import Group


def recommendation(found: Advice | None, styles: Mapping[str, Style]) -> Html | None:
    """The box on top: use this, because; the runner-up; the cost; what would change it."""
    if found is None:
        return None
    rows = [
        ("Because", [found.use.partition(": ")[2]]),
        ("Runner-up", found.runner_up),
        ("Cost", [found.cost]),
        ("But", found.fairness),
        ("What would change it", found.would_change),
    ]
    parts = [
        tag("div", tag("dt", name), tag("dd", [tag("p", prose(_capital(said))) for said in sentences]))
        for name, sentences in rows
        if sentences
    ]
    head = tag("h2", "Use ", key(styles[found.method]), " ", named(found.method), id="recommendation")
    return tag("section", head, tag("dl", parts), class_="advice")


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def picture(groups: Sequence[Group], found: Comparison, styles: Mapping[str, Style]) -> Html | None:
    """Accuracy against virtual time: a mark for each finished method, or the curve of a single one."""
    known = standings(found)
    time = next(i for i, cost in enumerate(COSTS) if cost.kind == "s")
    if len(known) > 1:
        said = "Further up is better, further left is faster. The line joins the methods that no other one beats."
        drawn: Html | None = trade_off_chart(known, time, COSTS[time], styles)
        title = COSTS[time].title
    else:
        axis = next(axis for axis in AXES if axis.name == "virtual")
        lines = curves(groups, axis)
        drawn = curve_chart(lines, axis, styles, None) if lines else None
        title, said = axis.title, f"Mean {words()} over the clients."
    if drawn is None:
        return None
    return tag("figure", tag("figcaption", title), drawn, tag("p", said, class_="about"), class_="first")
