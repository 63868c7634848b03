"""The time that each method of a comparison took to reach an accuracy, and which accuracy that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from potluck.metrics import ACCURACY
from potluck.runs.record import read
from potluck.runs.results import Run

STEP = 0.05  # targets are whole multiples of it


@dataclass(frozen=True)
class Reached:
    """The virtual time at which the mean accuracy first reached a target, per method and seed; None if never."""

    target: float | None
    seconds: dict[str, list[float | None]]

    def mean(self, method: str) -> float | None:
        """Return None if one seed never reached the target: a mean over the others would flatter."""
        times = self.seconds[method]
        known = [seconds for seconds in times if seconds is not None]
        return sum(known) / len(known) if known and len(known) == len(times) else None


def time_to_target(runs: Sequence[Run], target: float | None = None) -> Reached:
    """Without a target, take the highest multiple of 5 % that more than half of the methods reached with every seed."""
    curves: dict[str, list[Curve]] = {}
    for run in sorted(runs, key=lambda run: run.experiment.run.seed):
        curves.setdefault(str(run.experiment.method["name"]), []).append(_curve(run))
    metric = runs[0].metric if runs else ACCURACY
    if target is None:
        tops = [min(_top(curve) for curve in group) for group in curves.values()]
        aim = common_target(tops) if metric.share else common_error(tops)
    else:
        aim = metric.merit(target)
    seconds = {
        method: [None if aim is None else _first(curve, aim) for curve in group] for method, group in curves.items()
    }
    return Reached(None if aim is None else metric.merit(aim), seconds)


def common_target(tops: Sequence[float]) -> float | None:
    """Find the target from the best accuracy of each method; None if more than half of them stay below 5 %."""
    reached = sorted(tops)[(len(tops) - 1) // 2]  # more than half of the methods reached this accuracy
    steps = math.floor(max(0.0, reached) / STEP + 1e-9)
    return round(steps * STEP, 2) if steps else None


def common_error(tops: Sequence[float]) -> float | None:
    """The same of an error, whose merit is negative: what more than half of them reached, in two digits."""
    reached = sorted(tops)[(len(tops) - 1) // 2]
    if not math.isfinite(reached) or not reached:
        return None
    step = 10.0 ** (math.floor(math.log10(abs(reached))) - 1)
    return round(math.floor(reached / step + 1e-9) * step, 12)


Curve = list[tuple[float, float]]  # virtual time, merit of the mean score


def _curve(run: Run) -> Curve:
    sql = "SELECT virtual, mean FROM evaluations JOIN steps USING (step) ORDER BY step"
    metric = run.metric
    return [(row["virtual"], metric.merit(row["mean"])) for row in read(run.folder / "run.db", sql)]


def _top(curve: Curve) -> float:
    return max((mean for _, mean in curve), default=-math.inf)


def _first(curve: Curve, target: float) -> float | None:
    return next((virtual for virtual, mean in curve if mean >= target), None)
