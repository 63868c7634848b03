"""Accuracy against one cost: a spot per method with its name, and the line of those that no other method beats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from potluck.report.drawing.axes import across, axes, cost_axis, share_range, svg, up
from potluck.report.drawing.labels import place_labels
from potluck.report.drawing.markers import marker
from potluck.report.drawing.styles import Style
from potluck.report.figures.pareto import Cost, Standing, front
from potluck.report.markup import Html, tag
from potluck.units import listed, percent, quantity


def trade_off_chart(known: Sequence[Standing], i: int, cost: Cost, styles: Mapping[str, Style]) -> Html:
    values = [one.costs[i] for one in known]
    log, low, high, ticks = cost_axis(values, cost.kind)
    spread = [one.row.accuracy.std or 0.0 for one in known if one.row.accuracy]
    accuracies = [one.accuracy for one in known]
    bottom, top = _roomy([
        *(max(0.0, a - s) for a, s in zip(accuracies, spread, strict=True)),
        *(min(1.0, a + s) for a, s in zip(accuracies, spread, strict=True)),
    ])  # fmt: skip

    x, y = across(low, high, log, inset=12), up(bottom, top)
    parts = axes(x, y, ticks, bottom, top, cost.label + (" (logarithmic)" if log else ""))
    best = front(list(zip(values, accuracies, strict=True)))
    way = [(x(best[0][0]), y(best[0][1]))]
    for c, a in best[1:]:
        way += [(x(c), way[-1][1]), (x(c), y(a))]
    parts.append(tag("polyline", points=" ".join(f"{a:.1f},{b:.1f}" for a, b in way), class_="front"))
    for one, c, std in zip(known, values, spread, strict=True):
        style, label = styles[one.row.method], one.row.method
        said = f"{label}: {percent(one.accuracy)} for {quantity(c, cost.kind)}"
        inside = []
        if std:
            ends = {"y1": f"{y(max(0.0, one.accuracy - std)):.1f}", "y2": f"{y(min(1.0, one.accuracy + std)):.1f}"}
            inside.append(tag("line", x1=f"{x(c):.1f}", x2=f"{x(c):.1f}", class_="whisker", **ends))
        inside.append(marker(style, x(c), y(one.accuracy), said, r=6))
        parts.append(tag("g", inside, class_=style.css, data_series=label))
    spots = [(x(c), y(one.accuracy)) for one, c in zip(known, values, strict=True)]
    drawn = [((a, b - r), (a, b + r)) for (a, b), r in zip(spots, [y(0.0) - y(std) for std in spread], strict=True)]
    places = place_labels([one.row.method for one in known], spots, [*drawn, *pairwise(way)])
    for one, spot, place in zip(known, spots, places, strict=True):
        label = one.row.method
        if place.ring:
            ends = {"x1": f"{spot[0]:.1f}", "y1": f"{spot[1]:.1f}", "x2": f"{place.x:.1f}", "y2": f"{place.y - 5:.1f}"}
            parts.append(tag("line", class_="leader", data_series=label, **ends))
        at = {"x": f"{place.x:.1f}", "y": f"{place.y:.1f}"}
        parts.append(tag("text", label, text_anchor=place.anchor, class_="name", data_series=label, **at))
    told = " ".join(f"{one.row.method}: {percent(one.accuracy)} for {quantity(c, cost.kind)}."
                    for one, c in zip(known, values, strict=True))  # fmt: skip
    free = [one.row.method for one, c in zip(known, values, strict=True) if (c, one.accuracy) in best]
    return svg(parts, f"{cost.title}. {told} Nobody beats {listed(free)} in both.")


def _roomy(values: Sequence[float]) -> tuple[float, float]:
    """A range of accuracies with room for a name above the highest."""
    low, high = share_range(values)
    return low, high + (high - low) * 0.08
