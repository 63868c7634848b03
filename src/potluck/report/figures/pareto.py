"""Which methods no other method beats in accuracy and every cost: time, energy and bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from potluck.metrics import words
from potluck.report.figures.comparison import Comparison, Row, Spread
from potluck.units import listed


@dataclass(frozen=True)
class Cost:
    name: str
    heading: str  # with a gap for the metric
    label: str
    kind: str
    of: Callable[[Row], float | None]

    @property
    def title(self) -> str:
        return self.heading.format(words(capital=True))


def _mean(found: Spread | None) -> float | None:
    return None if found is None else found.mean


def _bytes(row: Row) -> float | None:
    return None if row.bytes_up is None or row.bytes_down is None else row.bytes_up.mean + row.bytes_down.mean


COSTS = (
    Cost("time", "{} against virtual time", "virtual time of a run", "s", lambda r: _mean(r.virtual_seconds)),
    Cost("joules", "{} against energy", "energy, all clients", "J", lambda r: _mean(r.all_joules or r.joules) or 0.0),
    Cost("bytes", "{} against bytes sent", "bytes sent up and down, all clients", "B", _bytes),
)


@dataclass(frozen=True)
class Standing:
    """One method, and the methods that beat it in accuracy and every cost at once."""

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
    """The Pareto-optimal points of (cost, accuracy), from the cheapest to the most accurate."""
    kept: list[tuple[float, float]] = []
    for cost, accuracy in sorted(set(points), key=lambda p: (p[0], -p[1])):
        if not kept or accuracy > kept[-1][1]:
            kept.append((cost, accuracy))
    return kept


def in_words(found: Sequence[Standing]) -> str:
    """Name the Pareto-optimal methods, and for each of the others a method that beats it in everything."""
    free = [one.row.method for one in found if not one.beaten_by]
    text = (
        f"Pareto-optimal in {words()}, time, energy and bytes: {listed(free)}."
        if len(free) < len(found)
        else f"Every method is Pareto-optimal: each is ahead of every other in {words()}, time, energy or bytes."
    )
    beaten: dict[str, list[str]] = {}
    for one in found:
        if one.beaten_by:  # at least one of them is Pareto-optimal
            beaten.setdefault(next(name for name in free if name in one.beaten_by), []).append(one.row.method)
    for better, others in beaten.items():
        text += f" {listed(others)} {'is' if len(others) == 1 else 'are'} no better than {better} in any of these."
    return text
