"""Which methods nobody beats in everything: accuracy against time, energy and bytes, and the front of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from potluck.report.charts import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    decade,
    frame,
    marker,
    nice_ticks,
    share_range,
    svg,
)
from potluck.report.comparison import Comparison, Row, Spread
from potluck.report.curves import UNLIKE
from potluck.report.frame import section
from potluck.report.looks import Look
from potluck.report.markup import Html, tag
from potluck.units import listed, percent, quantity, scale

Spot = tuple[float, float]
Box = tuple[float, float, float, float]  # left, top, right, bottom
LETTER = 8.8  # how wide a letter of a name is, at the size the page has for these charts
RINGS = (  # how far a name may be from its spot: to the side, and down to its line
    (11, (5, -9, 18)),
    (16, (-24, 32, -40, 48)),
    (26, (-56, 64, -72, 80, -88, 96)),
)


@dataclass(frozen=True)
class Cost:
    name: str
    title: str
    label: str
    kind: str
    of: Callable[[Row], float | None]


def _mean(found: Spread | None) -> float | None:
    return None if found is None else found.mean


def _bytes(row: Row) -> float | None:
    return None if row.bytes_up is None or row.bytes_down is None else row.bytes_up.mean + row.bytes_down.mean


COSTS = (
    Cost("time", "Accuracy against virtual time", "virtual time of a run", "s", lambda r: _mean(r.virtual_seconds)),
    Cost("joules", "Accuracy against energy", "energy, all clients", "J", lambda r: _mean(r.joules)),
    Cost("bytes", "Accuracy against bytes sent", "bytes sent up and down, all clients", "B", _bytes),
)


@dataclass(frozen=True)
class Standing:
    """One method among the others: whom it is beaten by in accuracy and every cost at once."""

    row: Row
    accuracy: float
    costs: tuple[float, ...]  # in the order of COSTS
    beaten_by: list[str]


def standings(found: Comparison) -> list[Standing]:
    """The finished methods with all their figures, in the order of the comparison."""
    known = []
    for row in found.rows:
        costs = [cost.of(row) for cost in COSTS]
        if row.finished and row.accuracy is not None and None not in costs:
            known.append((row, row.accuracy.mean, tuple(float(c) for c in costs if c is not None)))
    return [
        Standing(row, accuracy, costs, [o.method for o, a, c in known if _beats((a, c), (accuracy, costs))])
        for row, accuracy, costs in known
    ]


def _beats(one: tuple[float, tuple[float, ...]], other: tuple[float, tuple[float, ...]]) -> bool:
    """At least as good in everything, and better in something."""
    pairs = [(one[0], other[0]), *((-a, -b) for a, b in zip(one[1], other[1], strict=True))]
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Of (cost, accuracy), those that nobody beats in both, from the cheapest to the most accurate."""
    kept: list[tuple[float, float]] = []
    for cost, accuracy in sorted(set(points), key=lambda p: (p[0], -p[1])):
        if not kept or accuracy > kept[-1][1]:
            kept.append((cost, accuracy))
    return kept


def in_words(found: Sequence[Standing]) -> str:
    free = [one.row.method for one in found if not one.beaten_by]
    text = (
        f"Nobody beats {listed(free)} in accuracy, time, energy and bytes at once."
        if len(free) < len(found)
        else "Each method is ahead of every other in something: accuracy, time, energy or bytes."
    )
    beaten: dict[str, list[str]] = {}
    for one in found:
        if one.beaten_by:  # somebody whom nobody beats is among them
            beaten.setdefault(next(name for name in free if name in one.beaten_by), []).append(one.row.method)
    for better, others in beaten.items():
        text += f" {listed(others)} {'is' if len(others) == 1 else 'are'} no better than {better} in any of the four."
    return text


def trade_offs(found: Comparison, looks: Mapping[str, Look]) -> Html | None:
    """The section: three charts and what they say; none with fewer than two finished methods."""
    known = standings(found)
    if len(known) < 2:
        return None
    charts = [
        tag("figure", tag("figcaption", cost.title), _chart(known, i, cost, looks)) for i, cost in enumerate(COSTS)
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


def _chart(known: Sequence[Standing], i: int, cost: Cost, looks: Mapping[str, Look]) -> Html:
    values = [one.costs[i] for one in known]
    log, low, high, ticks = cost_axis(values, cost.kind)
    spread = [one.row.accuracy.std or 0.0 for one in known if one.row.accuracy]
    accuracies = [one.accuracy for one in known]
    bottom, top = _roomy([
        *(max(0.0, a - s) for a, s in zip(accuracies, spread, strict=True)),
        *(min(1.0, a + s) for a, s in zip(accuracies, spread, strict=True)),
    ])  # fmt: skip

    def x(at: float) -> float:
        ends = (math.log10(low), math.log10(high), math.log10(at)) if log else (low, high, at)
        return LEFT + 12 + (ends[2] - ends[0]) / ((ends[1] - ends[0]) or 1.0) * (WIDTH - LEFT - RIGHT - 24)

    def y(at: float) -> float:
        return TOP + (top - at) / (top - bottom) * (HEIGHT - TOP - BOTTOM)

    parts = frame(x, y, ticks, bottom, top, cost.label + (" (logarithmic)" if log else ""))
    best = front(list(zip(values, accuracies, strict=True)))
    way = [(x(best[0][0]), y(best[0][1]))]
    for c, a in best[1:]:
        way += [(x(c), way[-1][1]), (x(c), y(a))]
    parts.append(tag("polyline", points=" ".join(f"{a:.1f},{b:.1f}" for a, b in way), class_="front"))
    for one, c, std in zip(known, values, spread, strict=True):
        look, label = looks[one.row.method], one.row.method
        said = f"{label}: {percent(one.accuracy)} for {quantity(c, cost.kind)}"
        inside = []
        if std:
            ends = {"y1": f"{y(max(0.0, one.accuracy - std)):.1f}", "y2": f"{y(min(1.0, one.accuracy + std)):.1f}"}
            inside.append(tag("line", x1=f"{x(c):.1f}", x2=f"{x(c):.1f}", class_="whisker", **ends))
        inside.append(marker(look, x(c), y(one.accuracy), said, r=6))
        parts.append(tag("g", inside, class_=look.css, data_series=label))
    spots = [(x(c), y(one.accuracy)) for one, c in zip(known, values, strict=True)]
    drawn = [((a, b - r), (a, b + r)) for (a, b), r in zip(spots, [y(0.0) - y(std) for std in spread], strict=True)]
    places = labels_beside([one.row.method for one in known], spots, [*drawn, *pairwise(way)])
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


@dataclass(frozen=True)
class Place:
    """Where a name is written; from the second ring on, a line leads there from its spot."""

    x: float
    y: float
    anchor: str
    ring: int

    def box(self, name: str) -> Box:
        wide = LETTER * len(name)
        left = self.x if self.anchor == "start" else self.x - wide
        return left, self.y - 13, left + wide, self.y + 4


def labels_beside(names: Sequence[str], spots: Sequence[Spot], lines: Iterable[tuple[Spot, Spot]] = ()) -> list[Place]:
    """A place for the name of each spot that no other name, spot or line is in; the nearest one there is.

    Where all places are taken the least taken one has to do.
    """
    taken: list[Box] = [(a - 9, b - 9, a + 9, b + 9) for a, b in spots]
    taken += [box for line in lines for box in _along(*line)]
    found = []
    for name, (a, b) in zip(names, spots, strict=True):
        places = [
            Place(a + side, b + down, "start" if side > 0 else "end", ring)
            for ring, (beside, downs) in enumerate(RINGS)
            for down in downs
            for side in (beside, -beside)
        ]
        inside = [one for one in places if _within(one.box(name))] or places
        best = min(inside, key=lambda one: sum(_shared(one.box(name), other) for other in taken))
        taken.append(best.box(name))
        taken += _along((a, b), (best.x, best.y - 5)) if best.ring else []
        found.append(best)
    return found


def _along(start: Spot, end: Spot) -> list[Box]:
    """A line as a chain of small boxes."""
    steps = max(1, math.ceil(math.dist(start, end) / 6))
    shares = [i / steps for i in range(steps + 1)]
    middles = [(start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1])) for share in shares]
    return [(a - 3, b - 3, a + 3, b + 3) for a, b in middles]


def _within(box: Box) -> bool:
    return box[0] > LEFT and box[2] < WIDTH and box[1] > 0 and box[3] < HEIGHT - BOTTOM


def _shared(one: Box, other: Box) -> float:
    """The area that two boxes share."""
    across, down = min(one[2], other[2]) - max(one[0], other[0]), min(one[3], other[3]) - max(one[1], other[1])
    return max(0.0, across) * max(0.0, down)


def cost_axis(values: Sequence[float], kind: str) -> tuple[bool, float, float, list[tuple[float, str]]]:
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
