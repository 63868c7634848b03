"""Accuracy against costs: one curve per method, the mean over its seeds with a band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from potluck.metrics import metric, words
from potluck.report.figures.comparison import Spread, spread
from potluck.report.reading.groups import Group
from potluck.report.reading.run_figures import Point, RunFigures
from potluck.units import nice_ticks

MOST_POINTS = 150  # of a curve; a chart cannot show more
UNLIKE = 20  # curves whose ends are further apart than this factor are drawn on a logarithmic axis
TARGETS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Axis:
    name: str  # the field of a Point
    heading: str  # with a gap for the metric
    label: str
    kind: str  # of unit, see units.py

    @property
    def title(self) -> str:
        return self.heading.format(words(capital=True))


AXES = (
    Axis("round", "{} by round", "round", ""),
    Axis("virtual", "{} by virtual time", "virtual time", "s"),
    Axis("bytes", "{} by bytes sent", "bytes sent up and down, all clients", "B"),
    Axis("joules", "{} by energy", "energy for training and sending, all clients", "J"),
)


@dataclass(frozen=True)
class Curve:
    label: str
    x: list[float]
    mean: list[float]
    std: list[float] | None  # over seeds; None with one seed


def curve(group: Group, axis: Axis) -> Curve | None:
    """The mean over seeds at every x where a seed was evaluated, starting where all seeds have been evaluated.

    Between two evaluations the accuracy of a seed is interpolated. After the last one it stays, because a run that has
    ended spends nothing more and keeps its models.
    """
    runs = [_xy(one.points, axis) for one in group.counted]
    if not runs or (axis.name == "joules" and not group.metered):
        return None
    start = max(x[0] for x, _ in runs)
    grid = np.unique(np.concatenate([x for x, _ in runs]))
    grid = grid[grid >= start]
    if len(grid) > MOST_POINTS:
        grid = grid[np.unique(np.linspace(0, len(grid) - 1, MOST_POINTS).round().astype(int))]
    values = np.stack([np.interp(grid, x, y) for x, y in runs])
    std = values.std(axis=0, ddof=1).tolist() if len(runs) > 1 else None
    return Curve(group.label, grid.tolist(), values.mean(axis=0).tolist(), std)


def curves(groups: Sequence[Group], axis: Axis) -> list[Curve]:
    return [found for one in groups if (found := curve(one, axis)) is not None]


def logarithmic(drawn: Sequence[Curve], axis: Axis) -> bool:
    """Whether a linear axis would squeeze the curve of a method into a corner."""
    ends = [one.x[-1] for one in drawn]
    return bool(axis.kind and drawn) and min(ends) > 0 and max(ends) > UNLIKE * min(ends)


def above_zero(drawn: Sequence[Curve]) -> list[Curve]:
    """The curves without what a logarithmic axis cannot show: the evaluation before the first step."""
    kept = []
    for one in drawn:
        first = next((i for i, at in enumerate(one.x) if at > 0), len(one.x))
        std = None if one.std is None else one.std[first:]
        kept.append(Curve(one.label, one.x[first:], one.mean[first:], std))
    return [one for one in kept if one.x]


def _xy(points: Sequence[Point], axis: Axis) -> tuple[np.ndarray, np.ndarray]:
    """Increasing x; if nothing was spent between two evaluations, the later one counts."""
    last = {float(getattr(point, axis.name)): point.mean for point in points}
    x = np.array(sorted(last))
    return x, np.array([last[float(at)] for at in x])


@dataclass(frozen=True)
class Reached:
    """The costs until the mean accuracy first reached the target, over the seeds that reached it."""

    target: float
    seeds: int
    of: int
    virtual: Spread
    bytes: Spread
    joules: Spread | None  # None where it is not known


def targets(groups: Sequence[Group]) -> Sequence[float]:
    """The scores that a comparison asks for: fixed shares, or round numbers between the ends of the methods."""
    if metric().share:
        return TARGETS
    ends = [one.last.mean for each in groups for one in each.counted if one.last]
    low, high = (min(ends), max(ends)) if ends else (0.0, 0.0)
    return [at for at in nice_ticks(low, high, 5) if low < at <= high]


def reached(group: Group, target: float) -> Reached | None:
    first = [point for one in group.counted if (point := _first(one, target)) is not None]
    virtual, sent, joules = (spread([getattr(p, name) for p in first]) for name in ("virtual", "bytes", "joules"))
    if virtual is None or sent is None:
        return None
    return Reached(target, len(first), len(group.counted), virtual, sent, joules if group.metered else None)


def _first(one: RunFigures, target: float) -> Point | None:
    return next((point for point in one.points if point.mean >= target), None)


def ranked(group: Group) -> list[float]:
    """Accuracies from the worst client to the best: sorted within each seed, then the mean at each rank.

    Sorting means over seeds instead would hide a client that stayed untrained with one seed. Seeds with fewer clients
    are interpolated to the same number of ranks.
    """
    runs = [sorted(c.accuracy for c in one.clients if c.accuracy is not None) for one in group.counted]
    runs = [found for found in runs if found]
    if not runs:
        return []
    places = np.linspace(0, 1, max(len(found) for found in runs))
    means = np.mean([np.interp(places, np.linspace(0, 1, len(found)), found) for found in runs], axis=0)
    return [float(value) for value in means]


@dataclass(frozen=True)
class ClientLine:
    """One client over all runs."""

    name: str
    devices: list[str]  # with their links; every seed assigns the devices anew
    train: tuple[int, int]  # fewest and most, as splits differ between seeds
    test: tuple[int, int]
    accuracy: dict[str, float]  # by method's label, mean over the seeds in which the client was evaluated


def client_lines(groups: Sequence[Group], by: str | None) -> list[ClientLine]:
    """All clients, the worst first: by accuracy with the method `by`, or by the mean over the methods."""
    seen: dict[str, ClientLine] = {}
    for one in groups:
        values: dict[str, list[float]] = {}
        for each in one.counted or one.runs:
            for client in each.clients:
                if client.accuracy is not None:
                    values.setdefault(client.name, []).append(client.accuracy)
                line = seen.get(client.name)
                seen[client.name] = ClientLine(
                    client.name,
                    _with(line.devices if line else [], f"{client.device} on {client.link}"),
                    _widen(line.train if line else None, client.train),
                    _widen(line.test if line else None, client.test),
                    line.accuracy if line else {},
                )
        for name, found in values.items():
            seen[name].accuracy[one.label] = float(np.mean(found))

    def rank(line: ClientLine) -> tuple[float, str]:
        values = line.accuracy
        if by is not None and by in values:
            return values[by], line.name
        return (float(np.mean(list(values.values()))) if values else np.inf), line.name

    return sorted(seen.values(), key=rank)


def _with(names: list[str], name: str) -> list[str]:
    return names if name in names else [*names, name]


def _widen(known: tuple[int, int] | None, value: int) -> tuple[int, int]:
    return (value, value) if known is None else (min(known[0], value), max(known[1], value))
