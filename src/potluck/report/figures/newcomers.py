"""What clients get that took no part in training, method by method (`runs.newcomers`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from potluck.report.reading.groups import Group


@dataclass(frozen=True)
class Newcomers:
    """One method: means over the seeds that count. The keys are labelled rows of each class."""

    method: str
    clients: int
    rounds: int  # that a newcomer with labelled rows trained for itself
    accuracy: dict[int, float]  # with what the method gives a newcomer
    own: dict[int, float | None]  # with the model as its own training left it, where that is another one


def newcomers(groups: Sequence[Group], order: Sequence[str]) -> list[Newcomers]:
    """One line per method in this order; none for runs without newcomers."""
    by_label = {one.label: one for one in groups}
    lines = [_line(by_label[label]) for label in order]
    return [line for line in lines if line is not None]


def _line(one: Group) -> Newcomers | None:
    measured = [each.newcomers for each in one.counted if each.newcomers is not None]
    if not measured or len(measured) < len(one.counted):
        return None
    first = measured[0]
    counts = [count for count in first["rows"] if all(count in each["rows"] for each in measured)]

    def over(count: str, figure: str) -> float | None:
        values = [each["rows"][count][figure] for each in measured]
        return None if any(value is None for value in values) else float(np.mean(values))

    accuracy = {int(count): value for count in counts if (value := over(count, "mean")) is not None}
    own = {int(count): over(count, "own") for count in counts}
    return Newcomers(one.label, int(first["clients"]), int(first["rounds"]), accuracy, own)
