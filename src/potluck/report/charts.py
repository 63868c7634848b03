"""Charts as inline SVG: drawn by hand so that the page needs nothing from elsewhere and follows its light or dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from potluck.report.curves import Axis, Curve, logarithmic
from potluck.report.looks import Look
from potluck.report.markup import Html, tag
from potluck.units import number, percent, points, quantity, scale

WIDTH, HEIGHT = 480, 320
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 12, 46
MOST_MARKERS = 14  # on one curve
MOST_DOTS = 60  # clients that still get a dot each on the sorted chart

_PLUS = ((-0.5, -1.3), (0.5, -1.3), (0.5, -0.5), (1.3, -0.5), (1.3, 0.5), (0.5, 0.5),
         (0.5, 1.3), (-0.5, 1.3), (-0.5, 0.5), (-1.3, 0.5), (-1.3, -0.5), (-0.5, -0.5))  # fmt: skip

Place = Callable[[float], float]


def nice_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers that cover low to high: steps of 1, 2 or 5 times a power of ten."""
    span = high - low
    if span <= 0:
        return [low]
    raw = span / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * by for by in (1, 2, 5, 10) if power * by >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def share_range(values: Sequence[float]) -> tuple[float, float]:
    """A range of accuracies that ends on whole tenths and is at least two of them."""
    low, high = math.floor(min(values) * 10 + 1e-9), math.ceil(max(values) * 10 - 1e-9)
    while high - low < 2:
        high, low = (high + 1, low) if high < 10 else (high, low - 1)
    return max(0, low) / 10, min(10, high) / 10


def axis_ticks(drawn: Sequence[Curve], axis: Axis) -> tuple[bool, float, float, list[tuple[float, str]]]:
    """Whether the axis is logarithmic, its ends, and its ticks with their labels."""
    log = logarithmic(drawn, axis)
    largest = max(one.x[-1] for one in drawn)
    if log:
        low, high = min(one.x[0] for one in drawn), largest
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        every = max(1, math.ceil(len(powers) / 6))
        decades = [10.0**p for p in powers if p % every == 0 and low <= 10.0**p <= high]
        return True, low, high, [(at, decade(at, axis.kind)) for at in decades]
    divisor, symbol = scale(axis.kind, largest)
    if axis.kind:
        ticks = nice_ticks(0, largest / divisor)
        return False, 0, largest, [(at * divisor, f"{at:,.10g} {symbol}") for at in ticks]
    low = min(one.x[0] for one in drawn)
    whole = [at for at in nice_ticks(low, largest) if float(at).is_integer()]
    return False, low, largest, [(at, number(at)) for at in whole]


def decade(at: float, kind: str) -> str:
    # Powers of ten of a second are no round minutes or hours.
    return f"{number(at, 1)} s" if kind == "s" else quantity(at, kind)


def curve_chart(drawn: Sequence[Curve], axis: Axis, looks: Mapping[str, Look]) -> Html:
    log, low, high, ticks = axis_ticks(drawn, axis)
    bands = [(one, _bounds(one)) for one in drawn]
    bottom, top = share_range([value for _, (lows, highs) in bands for value in (*lows, *highs)])
    x, y = _across(low, high, log), _up(bottom, top)
    parts = frame(x, y, ticks, bottom, top, axis.label + (" (logarithmic)" if log else ""))
    for one, (lows, highs) in bands:
        look = looks[one.label]
        inside = []
        if one.std is not None:
            there = [f"{x(a):.1f},{y(b):.1f}" for a, b in zip(one.x, highs, strict=True)]
            back = [f"{x(a):.1f},{y(b):.1f}" for a, b in zip(one.x, lows, strict=True)]
            inside.append(tag("polygon", points=" ".join([*there, *reversed(back)]), class_="band"))
        way = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in zip(one.x, one.mean, strict=True))
        inside.append(tag("polyline", points=way, class_="line", stroke_dasharray=look.dash or None))
        for i in _some(len(one.x)):
            where = f"round {number(one.x[i])}" if not axis.kind else quantity(one.x[i], axis.kind)
            noise = "" if one.std is None else f" ± {points(one.std[i], signed=False)}"
            inside.append(
                marker(look, x(one.x[i]), y(one.mean[i]), f"{one.label}, {where}: {percent(one.mean[i])}{noise}")
            )
        parts.append(tag("g", inside, class_=look.css, data_series=one.label))
    return svg(parts, f"{axis.title}. {' '.join(_in_words(one, axis) for one in drawn)}")


def sorted_chart(accuracies: Mapping[str, Sequence[float]], looks: Mapping[str, Look]) -> Html:
    """Every method's clients from the worst to the best, each in its own order; the values are in that order."""
    most = max(len(values) for values in accuracies.values())
    bottom, top = share_range([value for values in accuracies.values() for value in values])
    x, y = _across(1, max(most, 2), False), _up(bottom, top)
    ticks = [(at, number(at)) for at in nice_ticks(1, most) if at >= 1 and float(at).is_integer()]
    parts = frame(x, y, ticks, bottom, top, "clients, from each method's worst to its best")
    said = []
    for label, ranked in accuracies.items():
        look = looks[label]
        way = " ".join(f"{x(i):.1f},{y(value):.1f}" for i, value in enumerate(ranked, 1))
        inside = [tag("polyline", points=way, class_="line", stroke_dasharray=look.dash or None)]
        if len(ranked) <= MOST_DOTS:
            inside += [marker(look, x(i), y(value), f"{label}, client {i} of {len(ranked)}: {percent(value)}")
                       for i, value in enumerate(ranked, 1)]  # fmt: skip
        parts.append(tag("g", inside, class_=look.css, data_series=label))
        middle = ranked[len(ranked) // 2]
        said.append(f"{label}: worst {percent(ranked[0])}, middle {percent(middle)}, best {percent(ranked[-1])}.")
    return svg(parts, f"Accuracy of every client, sorted. {' '.join(said)}")


def marker(look: Look, x: float, y: float, title: str | None = None, r: float = 3.6) -> Html:
    hint = tag("title", title) if title else None
    if look.marker == "circle":
        return tag("circle", hint, cx=f"{x:.1f}", cy=f"{y:.1f}", r=r, class_="dot")
    corners = {
        "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
        "diamond": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
        "up": ((0, -1.2), (1.2, 1), (-1.2, 1)),
        "down": ((0, 1.2), (1.2, -1), (-1.2, -1)),
        "left": ((-1.2, 0), (1, -1.2), (1, 1.2)),
        "right": ((1.2, 0), (-1, -1.2), (-1, 1.2)),
        "plus": _PLUS,
        "cross": [((a - b) * 0.71, (a + b) * 0.71) for a, b in _PLUS],
    }[look.marker]
    return tag("polygon", hint, points=" ".join(f"{x + r * a:.1f},{y + r * b:.1f}" for a, b in corners), class_="dot")


def key(look: Look) -> Html:
    """The sign of a method in legends and tables."""
    line = tag("line", x1=0, y1=7, x2=26, y2=7, class_="line", stroke_dasharray=look.dash or None)
    inside = tag("g", line, marker(look, 13, 7), class_=look.css)
    return tag("svg", inside, class_="key", viewBox="0 0 26 14", width=26, height=14, aria_hidden="true")


def svg(parts: list[Html], label: str) -> Html:
    return tag("svg", parts, class_="chart", viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=label)


def _across(low: float, high: float, log: bool) -> Place:
    def value(at: float) -> float:
        return math.log10(at) if log else at

    start, span = value(low), (value(high) - value(low)) or 1.0
    return lambda at: LEFT + (value(at) - start) / span * (WIDTH - LEFT - RIGHT)


def _up(low: float, high: float) -> Place:
    return lambda at: TOP + (high - at) / (high - low) * (HEIGHT - TOP - BOTTOM)


def frame(x: Place, y: Place, ticks: Sequence[tuple[float, str]], bottom: float, top: float, label: str) -> list[Html]:
    parts = []
    for share in (tick for tick in nice_ticks(bottom, top) if tick <= 1):
        at = f"{y(share):.1f}"
        parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at, class_="grid"))
        parts.append(tag("text", percent(share, 0), x=LEFT - 6, y=at, dy=4, text_anchor="end"))
    for value, name in ticks:
        at = f"{x(value):.1f}"
        parts.append(tag("line", x1=at, x2=at, y1=HEIGHT - BOTTOM, y2=HEIGHT - BOTTOM + 5, class_="tick"))
        middle = min(x(value), WIDTH - 2 - 3.6 * len(name))  # the last label must not be cut off
        parts.append(tag("text", name, x=f"{middle:.1f}", y=HEIGHT - BOTTOM + 18, text_anchor="middle"))
    parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=HEIGHT - BOTTOM, y2=HEIGHT - BOTTOM, class_="tick"))
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(tag("text", label, x=middle, y=HEIGHT - 8, text_anchor="middle", class_="label"))
    return parts


def _bounds(one: Curve) -> tuple[list[float], list[float]]:
    std = one.std or [0.0] * len(one.mean)
    lows = [max(0.0, mean - spread) for mean, spread in zip(one.mean, std, strict=True)]
    highs = [min(1.0, mean + spread) for mean, spread in zip(one.mean, std, strict=True)]
    return lows, highs


def _some(n: int) -> list[int]:
    """A few places spread over n, with both ends."""
    if n <= MOST_MARKERS:
        return list(range(n))
    return sorted({round(i * (n - 1) / (MOST_MARKERS - 1)) for i in range(MOST_MARKERS)})


def _in_words(one: Curve, axis: Axis) -> str:
    def at(value: float) -> str:
        return f"round {number(value)}" if not axis.kind else quantity(value, axis.kind)

    return f"{one.label}: from {percent(one.mean[0])} at {at(one.x[0])} to {percent(one.mean[-1])} at {at(one.x[-1])}."
