"""Scales, ticks and axes of the charts on the page, as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from potluck.metrics import metric, score
from potluck.report.figures.curves import UNLIKE, Axis, Curve, above_zero, logarithmic
from potluck.report.markup import Html, tag
from potluck.units import nice_ticks, number, quantity, scale

WIDTH, HEIGHT = 480, 320  # of a chart
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 12, 46  # its margins

Scale = Callable[[float], float]  # from a value to a position in the drawing
Ticks = list[tuple[float, str]]  # where, and the label


def svg(parts: list[Html], label: str, width: float = WIDTH, height: float = HEIGHT) -> Html:
    """A drawing with `label` as its text alternative."""
    return tag("svg", parts, class_="chart", viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=label)


def score_range(values: Sequence[float]) -> tuple[float, float]:
    """A range of scores that starts and ends on round numbers: on whole tenths of a share, and at least two of them."""
    if not metric().share:
        ends = nice_ticks(*_apart(min(values), max(values)))
        step = ends[1] - ends[0]
        return (ends[0] - step if ends[0] > min(values) else ends[0]), (
            ends[-1] + step if ends[-1] < max(values) else ends[-1]
        )
    low, high = math.floor(min(values) * 10 + 1e-9), math.ceil(max(values) * 10 - 1e-9)
    while high - low < 2:
        high, low = (high + 1, low) if high < 10 else (high, low - 1)
    return max(0, low) / 10, min(10, high) / 10


def along(values: Sequence[float]) -> Callable[[float], float]:
    """From a score to its place on a strip, from 0 to 1: a share is its own place, others lie between the ends."""
    if metric().share or not values:
        return lambda value: value
    low, high = score_range(values)
    return lambda value: (value - low) / (high - low)


def _apart(low: float, high: float) -> tuple[float, float]:
    """Two ends that are not the same."""
    room = 0.05 * abs(high) or 1.0
    return (low, high) if high - low > 1e-9 * abs(high) else (low - room, high + room)


def axis_ticks(drawn: Sequence[Curve], axis: Axis) -> tuple[bool, float, float, Ticks]:
    """Whether the axis is logarithmic, its ends, and its ticks with their labels."""
    log = logarithmic(drawn, axis)
    largest = max(one.x[-1] for one in drawn)
    if log:
        low, high = min(one.x[0] for one in above_zero(drawn)), largest
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


def cost_axis(values: Sequence[float], kind: str) -> tuple[bool, float, float, Ticks]:
    """Whether the axis is logarithmic, its ends, and its ticks with their labels."""
    low, high = min(values), max(values)
    if low > 0 and high > UNLIKE * low:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        every = max(1, math.ceil(len(powers) / 5))
        decades = [10.0**p for p in powers[::every] if low <= 10.0**p <= high]
        return True, low, high, [(at, decade(at, kind)) for at in decades]
    divisor, symbol = scale(kind, high)
    ticks = nice_ticks(0, high / divisor, 5)
    return False, 0.0, high or 1.0, [(at * divisor, f"{at:,.10g} {symbol}") for at in ticks]


def decade(at: float, kind: str) -> str:
    """The label of a power of ten."""
    # Powers of ten of a second are not round minutes or hours.
    return f"{number(at, 1)} s" if kind == "s" else quantity(at, kind)


def across(low: float, high: float, log: bool = False, inset: float = 0) -> Scale:
    """Left to right; `inset` keeps markers at the ends away from the margins."""

    def value(at: float) -> float:
        return math.log10(at) if log else at

    start, span = value(low), (value(high) - value(low)) or 1.0
    return lambda at: LEFT + inset + (value(at) - start) / span * (WIDTH - LEFT - RIGHT - 2 * inset)


def up(low: float, high: float, log: bool = False, inset: float = 0) -> Scale:
    """Bottom to top."""
    if log:
        low, high = math.log10(low), math.log10(high)
    span = (high - low) or 1.0
    return lambda at: (
        TOP + inset + (high - (math.log10(at) if log else at)) / span * (HEIGHT - TOP - BOTTOM - 2 * inset)
    )


def axes(x: Scale, y: Scale, ticks: Ticks, bottom: float, top: float, label: str) -> list[Html]:
    """The grid lines with their percentages, and the axis below with its ticks and label."""
    shares = [tick for tick in nice_ticks(bottom, top) if tick <= 1 or not metric().share]
    return [*levels(y, [(share, score(share, 0)) for share in shares]), *below(x, ticks, label)]


def levels(y: Scale, ticks: Ticks) -> list[Html]:
    """Grid lines across the chart, each with its value."""
    parts = []
    for value, name in ticks:
        at = f"{y(value):.1f}"
        parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at, class_="grid"))
        parts.append(tag("text", name, x=LEFT - 6, y=at, dy=4, text_anchor="end"))
    return parts


def below(x: Scale, ticks: Ticks, label: str) -> list[Html]:
    """The axis below the chart with its ticks and label."""
    parts = []
    for value, name in ticks:
        at = f"{x(value):.1f}"
        parts.append(tag("line", x1=at, x2=at, y1=HEIGHT - BOTTOM, y2=HEIGHT - BOTTOM + 5, class_="tick"))
        middle = min(x(value), WIDTH - 2 - 3.6 * len(name))  # the last label must not be cut off
        parts.append(tag("text", name, x=f"{middle:.1f}", y=HEIGHT - BOTTOM + 18, text_anchor="middle"))
    parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=HEIGHT - BOTTOM, y2=HEIGHT - BOTTOM, class_="tick"))
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(tag("text", label, x=middle, y=HEIGHT - 8, text_anchor="middle", class_="label"))
    return parts


def time_axis(low: float, high: float, left: float, right: float, bottom: float) -> tuple[Scale, list[Html]]:
    """The scale of virtual time, and its axis with ticks."""
    span = (high - low) or 1.0

    def x(at: float) -> float:
        return left + (at - low) / span * (right - left)

    divisor, symbol = scale("s", high)
    parts = [tag("line", x1=left, x2=right, y1=bottom, y2=bottom, class_="tick")]
    for tick in nice_ticks(low / divisor, high / divisor, 8):
        at = x(tick * divisor)
        parts.append(tag("line", x1=f"{at:.1f}", x2=f"{at:.1f}", y1=bottom, y2=bottom + 5, class_="tick"))
        parts.append(tag("text", f"{tick:,.10g} {symbol}", x=f"{at:.1f}", y=bottom + 19, text_anchor="middle"))
    parts.append(tag("text", "virtual time", x=(left + right) / 2, y=bottom + 37, text_anchor="middle", class_="label"))
    return x, parts


def stacked_band(x: Scale, y: Scale, edges: Sequence[float], below: Sequence[float], above: Sequence[float]) -> str:
    """The path of one layer of a stacked area: a step per stretch between two edges."""
    there = [(x(edges[j + side]), y(above[j])) for j in range(len(above)) for side in (0, 1)]
    back = [(x(edges[j + side]), y(below[j])) for j in reversed(range(len(below))) for side in (1, 0)]
    return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in [*there, *back]) + "Z"
