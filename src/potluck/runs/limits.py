"""When a run ends: the limits of `[stop]` and `[budget]`, and how much of them is used.

A limit is checked after every step. A run may pass it by what its last step used. Figures at a budget come from the
last evaluation at or before the limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from potluck.runs.experiment import Experiment

# Kind of budget -> what its use is called in a sentence.
KINDS = {
    "virtual_seconds": "virtual seconds",
    "joules": "joules",
    "bytes": "bytes",
    "local_passes": "local passes",
    "rounds": "rounds",
}
STUCK = 20  # rounds in which nothing grew that the budget counts


@dataclass(frozen=True)
class Used:
    """What a run has used so far."""

    virtual_seconds: float = 0.0
    joules: float = 0.0
    bytes: int = 0
    local_passes: float = 0.0
    rounds: int = 0

    @classmethod
    def of(cls, now: float, round: int, totals: Mapping[str, float]) -> Used:
        """From the clock, the round and the totals of the record."""
        moved = int(totals["bytes_up"] + totals["bytes_down"])
        return cls(now, totals["joules"], moved, totals["passes"], round)


def ended(experiment: Experiment, used: Used) -> str | None:
    """Why a run that used so much is over, or None."""
    stop, budget = experiment.stop, experiment.budget.limits
    if stop.rounds is not None and used.rounds >= stop.rounds:
        return "1 round done" if stop.rounds == 1 else f"{stop.rounds} rounds done"
    if stop.virtual_seconds is not None and used.virtual_seconds >= stop.virtual_seconds:
        return f"{stop.virtual_seconds:g} virtual seconds passed"
    for kind, limit in budget.items():
        if getattr(used, kind) >= limit * (1.0 - 1e-9):  # sums of passes are rounded
            return f"the budget of {limit:,.10g} {KINDS[kind]} is used up"
    return None


def progress(experiment: Experiment, used: Used) -> float:
    """The largest share of a limit that is used, 0 to 1; accuracy and patience say nothing about it."""
    stop = experiment.stop
    limits = [("rounds", stop.rounds), ("virtual_seconds", stop.virtual_seconds), *experiment.budget.limits.items()]
    shares = [getattr(used, kind) / limit for kind, limit in limits if limit]
    return min(1.0, max(shares, default=0.0))
