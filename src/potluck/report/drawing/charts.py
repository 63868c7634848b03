"""Charts as inline SVG: drawn by hand, so that the page is one file and follows the reader's light or dark mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from potluck.metrics import distance, score, within, words
from potluck.report.drawing.axes import (
    BOTTOM,
    HEIGHT,
    LEFT,
    TOP,
    WIDTH,
    across,
    axes,
    axis_ticks,
    score_range,
    svg,
    up,
)
from potluck.report.drawing.markers import marker
from potluck.report.drawing.styles import Style
from potluck.report.figures.curves import Axis, Curve, above_zero
from potluck.report.markup import Html, tag
from potluck.units import nice_ticks, number, quantity

MOST_MARKERS = 14  # on one curve
MOST_DOTS = 60  # clients that still get a dot each on the sorted chart


def curve_chart(
    drawn: Sequence[Curve], axis: Axis, styles: Mapping[str, Style], limit: tuple[float, str] | None = None
) -> Html:
    """A curve for each method. `limit` is a budget on this axis, and its name: a vertical line."""
    log, low, high, ticks = axis_ticks(drawn, axis)
    drawn = above_zero(drawn) if log else drawn
    bands = [(one, _bounds(one)) for one in drawn]
    bottom, top = score_range([value for _, (lows, highs) in bands for value in (*lows, *highs)])
    x, y = across(low, high, log), up(bottom, top)
    parts = axes(x, y, ticks, bottom, top, axis.label + (" (logarithmic)" if log else ""))
    for one, (lows, highs) in bands:
        style = styles[one.label]
        inside = []
        if one.std is not None:
            there = [f"{x(a):.1f},{y(b):.1f}" for a, b in zip(one.x, highs, strict=True)]
            back = [f"{x(a):.1f},{y(b):.1f}" for a, b in zip(one.x, lows, strict=True)]
            inside.append(tag("polygon", points=" ".join([*there, *reversed(back)]), class_="band"))
        way = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in zip(one.x, one.mean, strict=True))
        inside.append(tag("polyline", points=way, class_="line", stroke_dasharray=style.dash or None))
        for i in _some(len(one.x)):
            where = f"round {number(one.x[i])}" if not axis.kind else quantity(one.x[i], axis.kind)
            noise = "" if one.std is None else f" ± {distance(one.std[i], signed=False)}"
            inside.append(
                marker(style, x(one.x[i]), y(one.mean[i]), f"{one.label}, {where}: {score(one.mean[i])}{noise}")
            )
        parts.append(tag("g", inside, class_=style.css, data_series=one.label))
    told = " ".join(_in_words(one, axis) for one in drawn)
    if limit is not None and low <= limit[0] <= high:
        at, name = x(limit[0]), limit[1]
        parts.append(tag("line", x1=f"{at:.1f}", x2=f"{at:.1f}", y1=TOP, y2=HEIGHT - BOTTOM, class_="budget"))
        anchor, shift = ("end", -4) if at > (LEFT + WIDTH) / 2 else ("start", 4)
        parts.append(tag("text", name, x=f"{at + shift:.1f}", y=HEIGHT - BOTTOM - 6, text_anchor=anchor))
        told += f" The line: {name}."
    return svg(parts, f"{axis.title}. {told}")


def sorted_chart(accuracies: Mapping[str, Sequence[float]], styles: Mapping[str, Style]) -> Html:
    """The clients of every method from the worst to the best; `accuracies` are already sorted."""
    most = max(len(values) for values in accuracies.values())
    bottom, top = score_range([value for values in accuracies.values() for value in values])
    x, y = across(1, max(most, 2)), up(bottom, top)
    ticks = [(at, number(at)) for at in nice_ticks(1, most) if at >= 1 and float(at).is_integer()]
    parts = axes(x, y, ticks, bottom, top, "clients of each method, from the worst to the best")
    said = []
    for label, ranked in accuracies.items():
        style = styles[label]
        way = " ".join(f"{x(i):.1f},{y(value):.1f}" for i, value in enumerate(ranked, 1))
        inside = [tag("polyline", points=way, class_="line", stroke_dasharray=style.dash or None)]
        if len(ranked) <= MOST_DOTS:
            for i, value in enumerate(ranked, 1):
                hint = f"{label}, client {i} of {len(ranked)}: {score(value)}"
                inside.append(marker(style, x(i), y(value), hint))
        parts.append(tag("g", inside, class_=style.css, data_series=label))
        middle = ranked[len(ranked) // 2]
        said.append(f"{label}: worst {score(ranked[0])}, middle {score(middle)}, best {score(ranked[-1])}.")
    return svg(parts, f"{words(capital=True)} of all clients, sorted. {' '.join(said)}")


def _bounds(one: Curve) -> tuple[list[float], list[float]]:
    std = one.std or [0.0] * len(one.mean)
    pairs = [within(mean - spread, mean + spread) for mean, spread in zip(one.mean, std, strict=True)]
    return [low for low, _ in pairs], [high for _, high in pairs]


def _some(n: int) -> list[int]:
    """A few indices spread evenly over n, with both ends."""
    if n <= MOST_MARKERS:
        return list(range(n))
    return sorted({round(i * (n - 1) / (MOST_MARKERS - 1)) for i in range(MOST_MARKERS)})


def _in_words(one: Curve, axis: Axis) -> str:
    def at(value: float) -> str:
        return f"round {number(value)}" if not axis.kind else quantity(value, axis.kind)

    return f"{one.label}: from {score(one.mean[0])} at {at(one.x[0])} to {score(one.mean[-1])} at {at(one.x[-1])}."
