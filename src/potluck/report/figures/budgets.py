"""Methods at equal budgets: the accuracy at the same virtual time and at the same local passes, and on the way there.

A round is another amount of work for every method. Virtual time and local passes are the same for all. The accuracy at
a limit is that of the last evaluation at or before it; a run that ended earlier keeps its last accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from potluck.report.reading.groups import Group
from potluck.report.reading.run_figures import Point, RunFigures
from potluck.runs.limits import KINDS
from potluck.units import number, quantity

Measure = Callable[[Point], float | None]
MEASURES: dict[str, Measure] = {
    "virtual_seconds": lambda point: point.virtual,
    "joules": lambda point: point.joules,
    "bytes": lambda point: point.bytes,
    "local_passes": lambda point: point.passes,
    "rounds": lambda point: point.round,
}
UNITS = {"virtual_seconds": "s", "joules": "J", "bytes": "B"}
SAME = 1.0 + 1e-9  # sums of passes are rounded


@dataclass(frozen=True)
class Limit:
    """An amount at which methods are compared."""

    kind: str  # as in [budget]
    amount: float
    given: bool  # by the user; otherwise the median of the runs

    @property
    def words(self) -> str:
        unit = UNITS.get(self.kind)
        return quantity(self.amount, unit) if unit else f"{number(self.amount)} {KINDS[self.kind]}"

    @property
    def label(self) -> str:
        """How the line on a chart is named."""
        return f"{'budget' if self.given else 'median run'}: {self.words}"


def limit_of(groups: Sequence[Group], kind: str) -> Limit | None:
    """The budget of this kind that all runs share, else the median over the methods of what their runs used."""
    runs = [run for one in groups for run in one.counted]
    given = {run.experiment.budget.limits.get(kind) for run in runs}
    (amount,) = given if len(given) == 1 else (None,)
    if amount is not None:
        return Limit(kind, float(amount), given=True)
    used = [_used(one, kind) for one in groups]
    known = [value for value in used if value is not None]
    if len(known) < len(groups) or not known or np.median(known) <= 0:
        return None
    return Limit(kind, float(np.median(known)), given=False)


def _used(one: Group, kind: str) -> float | None:
    """What the runs of a method used, mean over its seeds."""
    ends = [MEASURES[kind](run.points[-1]) for run in one.counted if run.points]
    known = [end for end in ends if end is not None]
    return float(np.mean(known)) if known and len(known) == len(ends) else None


def accuracy_at(run: RunFigures, limit: Limit) -> float | None:
    """The mean accuracy at the last evaluation at or before the limit."""
    found = None
    for point in run.points:
        used = MEASURES[limit.kind](point)
        if used is None:
            return None
        if used <= limit.amount * SAME:
            found = point.mean
    return found


def area(run: RunFigures, limit: Limit) -> float | None:
    """The mean accuracy on the way to the limit: the area under the curve by the length of the axis.

    Between two evaluations the accuracy is that of the earlier one. Runs without an evaluation at 0 have no area.
    """
    used = [MEASURES[limit.kind](point) for point in run.points]
    known = [at for at in used if at is not None]
    if len(known) < len(used) or not known or known[0] > 0:
        return None
    ends = [*known[1:], limit.amount]
    total = sum(
        point.mean * max(0.0, min(limit.amount, end) - min(limit.amount, begin))
        for point, begin, end in zip(run.points, known, ends, strict=True)
    )
    return total / limit.amount


def line_of(groups: Sequence[Group], field: str) -> Limit | None:
    """Where to draw the budget on an axis, by the field of a `Point`; of bytes and joules only what the user gave."""
    if field == "round" or (len(groups) < 2 and not any(run.experiment.budget.limits for run in groups[0].counted)):
        return None
    found = limit_of(groups, {"virtual": "virtual_seconds"}.get(field, field))
    return found if found is not None and (found.given or field == "virtual") else None


def basis(groups: Sequence[Group]) -> str:
    """What the methods have in common, as the first line of a comparison; a warning where it is rounds."""
    runs = [run for one in groups for run in one.counted]
    if len(groups) < 2 or not runs:
        return ""
    budgets = [run.experiment.budget.limits for run in runs]
    fair = {kind: amount for kind, amount in budgets[0].items() if kind != "rounds"}
    if all(limits == budgets[0] for limits in budgets) and fair:
        shared = ", ".join(Limit(kind, amount, given=True).words for kind, amount in fair.items())
        return f"Equal budget: every run ends at {shared}.{_pace(runs)}"
    each = [f"{one.label} {words}" for one in groups if (words := _per_round(one))]
    return f"Rounds mean different things. One round is: {'; '.join(each)}. Compare at equal time or passes instead."


def _per_round(one: Group) -> str:
    """The passes and the virtual time of one round of a method, mean over its runs."""
    runs = [run for run in one.counted if run.rounds]
    if not runs:
        return ""
    seconds = float(np.mean([run.virtual / run.rounds for run in runs]))
    passes = [run.passes / run.rounds for run in runs if run.passes is not None]
    if len(passes) < len(runs):
        return quantity(seconds, "s")
    shown = number(float(np.mean(passes)))
    return f"{shown} {'pass' if shown == '1' else 'passes'} and {quantity(seconds, 's')}"


def _pace(runs: Sequence[RunFigures]) -> str:
    paces = {run.experiment.fleet.pace for run in runs}
    if len(paces) != 1:
        return ""
    (pace,) = paces
    parts = []
    if pace.rows_per_hour:
        parts.append(f"{number(pace.rows_per_hour)} labelled rows arrive at a client in an hour")
    if pace.passes:
        parts.append(f"each row is visited at most {number(pace.passes)} times")
    if pace.duty < 1:
        parts.append(f"a device trains for at most {number(100 * pace.duty)} % of the time")
    return f" Pace of the devices: {', and '.join(parts)}." if parts else ""
