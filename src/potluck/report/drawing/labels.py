"""Place the names of markers on a chart so that they cover neither each other nor a line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from potluck.report.drawing.axes import BOTTOM, HEIGHT, LEFT, WIDTH

Spot = tuple[float, float]
Box = tuple[float, float, float, float]  # left, top, right, bottom
LETTER = 8.8  # width of a letter, at the size of these charts on the page
RINGS = (  # distances of a name from its marker: to the side, and down to its baseline
    (11, (5, -9, 18)),
    (16, (-24, 32, -40, 48)),
    (26, (-56, 64, -72, 80, -88, 96)),
)


@dataclass(frozen=True)
class Label:
    """Where a name is written; from the second ring on, a line leads to it from its marker."""

    x: float
    y: float
    anchor: str
    ring: int

    def box(self, name: str) -> Box:
        wide = LETTER * len(name)
        left = self.x if self.anchor == "start" else self.x - wide
        return left, self.y - 13, left + wide, self.y + 4


def place_labels(names: Sequence[str], spots: Sequence[Spot], lines: Iterable[tuple[Spot, Spot]] = ()) -> list[Label]:
    """The nearest free position for the name of each marker, away from other names, markers and lines.

    If no position is free, the one with the least overlap is taken.
    """
    taken: list[Box] = [(a - 9, b - 9, a + 9, b + 9) for a, b in spots]
    taken += [box for line in lines for box in _along(*line)]
    found = []
    for name, (a, b) in zip(names, spots, strict=True):
        places = [
            Label(a + side, b + down, "start" if side > 0 else "end", ring)
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
