"""Accuracy against one cost, and time against bytes: a marker per method with its name, and the Pareto-optimal line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from potluck.metrics import score, within
from potluck.report.drawing.axes import across, axes, below, cost_axis, levels, score_range, svg, up
from potluck.report.drawing.labels import Label, Spot, place_labels
from potluck.report.drawing.markers import marker
from potluck.report.drawing.styles import Style
from potluck.report.figures.exchange import Exchange
from potluck.report.figures.pareto import Cost, Standing, front
from potluck.report.markup import Html, tag
from potluck.units import listed, quantity

LONGEST = 26  # letters of a name on a chart


@dataclass(frozen=True)
class _Method:
    """One method on the chart: its values, and the ends of its whisker."""

    name: str
    cost: float
    accuracy: float
    low: float
    high: float

    @classmethod
    def of(cls, one: Standing, i: int) -> _Method:
        std = (one.row.accuracy.std if one.row.accuracy else None) or 0.0
        low, high = within(one.accuracy - std, one.accuracy + std)
        return cls(one.row.method, one.costs[i], one.accuracy, low, high)


def trade_off_chart(known: Sequence[Standing], i: int, cost: Cost, styles: Mapping[str, Style]) -> Html:
    """`i` is the position of this cost among the costs of a standing."""
    methods = [_Method.of(one, i) for one in known]
    log, low, high, ticks = cost_axis([one.cost for one in methods], cost.kind)
    bottom, top = _roomy([*(one.low for one in methods), *(one.high for one in methods)])
    x, y = across(low, high, log, inset=12), up(bottom, top)
    parts = axes(x, y, ticks, bottom, top, cost.label + (" (logarithmic)" if log else ""))
    best = front([(one.cost, one.accuracy) for one in methods])
    line = [(x(best[0][0]), y(best[0][1]))]
    for at, accuracy in best[1:]:
        line += [(x(at), line[-1][1]), (x(at), y(accuracy))]
    parts.append(tag("polyline", points=" ".join(f"{a:.1f},{b:.1f}" for a, b in line), class_="front"))
    said = {one.name: f"{one.name}: {score(one.accuracy)} for {quantity(one.cost, cost.kind)}" for one in methods}
    whiskers = [((x(one.cost), y(one.high)), (x(one.cost), y(one.low))) for one in methods]
    for one, whisker in zip(methods, whiskers, strict=True):
        inside = [_line(*whisker, class_="whisker")] if one.high > one.low else []
        inside.append(marker(styles[one.name], x(one.cost), y(one.accuracy), said[one.name], r=6))
        parts.append(tag("g", inside, class_=styles[one.name].css, data_series=one.name))
    spots = [(x(one.cost), y(one.accuracy)) for one in methods]
    labels = place_labels([one.name for one in methods], spots, [*whiskers, *pairwise(line)])
    for one, spot, label in zip(methods, spots, labels, strict=True):
        parts += _name(one.name, spot, label)
    free = [one.name for one in methods if (one.cost, one.accuracy) in best]
    return svg(parts, f"{cost.title}. {'. '.join(said.values())}. Pareto-optimal: {listed(free)}.")


def exchange_chart(found: Exchange, styles: Mapping[str, Style]) -> Html:
    """Time against bytes until an accuracy. Lower and further left is cheaper; the line is the exchange rate."""
    sent, slow = [one.bytes for one in found.paid], [one.seconds for one in found.paid]
    x_log, x_low, x_high, x_ticks = cost_axis(sent, "B")
    y_log, y_low, y_high, y_ticks = cost_axis(slow, "s")
    x, y = across(x_low, x_high, x_log, inset=12), up(y_low, y_high * (1.0 if y_log else 1.08), y_log, inset=12)
    what = "bytes sent up and down until then, all clients" + (" (logarithmic)" if x_log else "")
    line = [(x(at), y(seconds)) for at, seconds in found.front]
    parts = [*levels(y, y_ticks), *below(x, x_ticks, what)]
    parts.append(tag("polyline", points=" ".join(f"{a:.1f},{b:.1f}" for a, b in line), class_="front"))
    ways = [[(x(one.bytes), y(one.seconds)) for one in points] for points in found.paces.values()]
    for way in ways:
        joined = " ".join(f"{a:.1f},{b:.1f}" for a, b in way)
        parts.append(tag("polyline", points=joined, class_="leader", fill="none"))
    said = [f"{one.method}: {quantity(one.seconds, 's')} and {quantity(one.bytes, 'B')}" for one in found.paid]
    spots = [(x(one.bytes), y(one.seconds)) for one in found.paid]
    for one, spot, told in zip(found.paid, spots, said, strict=True):
        inside = marker(styles[one.method], *spot, told, r=6)
        parts.append(tag("g", inside, class_=styles[one.method].css, data_series=one.method))
    names = [_brief(one.method) for one in found.paid]
    drawn = [segment for way in (line, *ways) for segment in pairwise(way)]
    for name, spot, label in zip(names, spots, place_labels(names, spots, drawn), strict=True):
        parts += _name(name, spot, label)
    return svg(parts, f"{exchange_title(found)}. {'. '.join(said)}. {found.in_words}")


def _brief(label: str) -> str:
    """A method with its first setting's value, where the whole label would not fit: its marker says all."""
    method, _, settings = label.partition(" (")
    value = settings.partition(",")[0].rstrip(")").partition("=")[2]
    return f"{method}, {value}" if value and len(label) > LONGEST else label


def exchange_title(found: Exchange) -> str:
    return f"Virtual time against bytes, to {score(found.target, 0)}"


def _name(name: str, spot: Spot, label: Label) -> list[Html]:
    """The name of a method, and a line to it if it is not right next to its marker."""
    leader = [_line(spot, (label.x, label.y - 5), class_="leader", data_series=name)] if label.ring else []
    at = {"x": f"{label.x:.1f}", "y": f"{label.y:.1f}"}
    return [*leader, tag("text", name, text_anchor=label.anchor, class_="name", data_series=name, **at)]


def _line(start: Spot, end: Spot, **attributes: str) -> Html:
    ends = {"x1": start[0], "y1": start[1], "x2": end[0], "y2": end[1]}
    return tag("line", **{name: f"{value:.1f}" for name, value in ends.items()}, **attributes)


def _roomy(values: Sequence[float]) -> tuple[float, float]:
    """A range of accuracies with room for a name above the highest."""
    low, high = score_range(values)
    return low, high + (high - low) * 0.08
