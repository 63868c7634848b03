"""Time against bytes: what each method paid until a mean accuracy that several methods reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from potluck.metrics import score, words
from potluck.report.figures.curves import reached, targets
from potluck.report.figures.pareto import front
from potluck.report.reading.groups import Group
from potluck.units import listed


@dataclass(frozen=True)
class Paid:
    """One method: the means over its seeds, all of which reached the accuracy."""

    method: str  # with the settings that differ
    name: str  # without
    seconds: float
    bytes: float


@dataclass(frozen=True)
class Exchange:
    target: float
    paid: tuple[Paid, ...]
    short: tuple[str, ...]  # methods with a seed that did not come so far

    @property
    def front(self) -> list[tuple[float, float]]:
        """(bytes, seconds) of those that no other method beats in both, from the fewest bytes to the least time."""
        return [(sent, -slow) for sent, slow in front([(one.bytes, -one.seconds) for one in self.paid])]

    @property
    def paces(self) -> dict[str, list[Paid]]:
        """Methods that are here with several settings: their points, from the fewest bytes on, are what time costs."""
        found: dict[str, list[Paid]] = {}
        for one in sorted(self.paid, key=lambda each: each.bytes):
            found.setdefault(one.name, []).append(one)
        return {name: points for name, points in found.items() if len(points) > 1}

    @property
    def in_words(self) -> str:
        best = set(self.front)
        free = [one.method for one in self.paid if (one.bytes, one.seconds) in best]
        text = f"To a mean {words()} of {score(self.target, 0)} no method is ahead of {listed(free)} in time and bytes."
        if self.short:
            text += f" Not reached with every seed: {listed(list(self.short))}."
        return text


def exchange(groups: Sequence[Group]) -> Exchange | None:
    """At the accuracy that most methods reached with every seed, the highest of these; None if fewer than two did."""
    found = [_at(groups, target) for target in targets(groups)]
    best = max(found, key=lambda one: (len(one.paid), one.target), default=None)
    return best if best is not None and len(best.paid) > 1 else None


def _at(groups: Sequence[Group], target: float) -> Exchange:
    paid, short = [], []
    for one in groups:
        cost = reached(one, target)
        if cost is None or cost.seeds < cost.of:
            short.append(one.label)
        else:
            paid.append(Paid(one.label, one.method, cost.virtual.mean, cost.bytes.mean))
    return Exchange(target, tuple(paid), tuple(short))
