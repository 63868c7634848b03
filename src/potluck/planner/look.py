"""A short look: train for at most a tenth of what full runs train, and keep what validation rows say.

The look has seeds and validation rows of its own, as tuning has, and reads no test row. A method whose first step is
longer than a tenth of its run cannot be looked at.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from potluck.planner.dry import dry_run
from potluck.runs import drive
from potluck.runs.experiment import Experiment
from potluck.runs.results import Run
from potluck.tune.request import Request

SHARE = 0.1  # of the passes of a full run
SEED = 1000  # not one of the report's
VALID = Request().valid_share


@dataclass(frozen=True)
class Glimpse:
    """What a look saw: local passes, and the mean score of the validation rows after them; the first is before."""

    passes: tuple[float, ...]
    scores: tuple[float, ...]
    share: float  # of the passes of a full run
    wall: float  # seconds it took here

    @property
    def last(self) -> float:
        return self.scores[-1]


def looked_at(experiment: Experiment, folder: str | None = None, seed: int = SEED) -> Experiment:
    """The experiment of a look: its own seed, validation rows, and the split and deal of the full runs."""
    partition: dict[str, Any] = {"seed": experiment.partition_spec().seed}
    if not experiment.partition_spec().valid_share:
        partition["valid_share"] = VALID
    deal = experiment.run.seed if experiment.fleet.seed is None else experiment.fleet.seed
    out = {} if folder is None else {"out": folder, "name": "look"}
    run = {"seed": seed + experiment.run.seed, "evaluate_on": "valid", "evaluate_every": 1, **out}
    return experiment.with_(partition=partition, fleet={"seed": deal}, run=run)


def within(steps: Sequence[float], share: float = SHARE) -> float | None:
    """The passes of the last step that is within a share of all; None if the first step is longer."""
    most = share * steps[-1] * (1 + 1e-6) if steps else 0.0
    return max((passes for passes in steps if 0 < passes <= most), default=None)


def in_small(experiment: Experiment, passes: int, seed: int = SEED) -> Glimpse:
    """A whole run with so few passes, with what a method does at its end: FTL's clients fine-tune in it."""
    with tempfile.TemporaryDirectory(prefix="potluck-look-") as folder:
        planned = looked_at(experiment, folder, seed)
        run = drive.start(planned.with_(budget={"local_passes": float(passes)}))
        return _seen(run, passes / (planned.budget.local_passes or passes))


def look(experiment: Experiment, share: float = SHARE, seed: int = SEED) -> Glimpse | None:
    """Train a share of the run; None where one step is more than that. The experiment needs a budget of passes."""
    planned = looked_at(experiment, seed=seed)
    with dry_run(planned) as (run, _):
        steps = run.table("steps")
    total = steps[-1]["passes"] if steps else 0.0
    # A run can pause where it is evaluated, and that is where a round ends: FedBuff has several steps in one.
    rounds = [0, *(row["round"] for row in steps)]
    ends = [row["passes"] for before, row in zip(rounds, steps, strict=False) if row["round"] > before]
    passes = within([*ends, total], share)
    budget = planned.budget.local_passes
    if passes is None or budget is None:
        return None
    with tempfile.TemporaryDirectory(prefix="potluck-look-") as folder:
        run = drive.start(looked_at(experiment, folder, seed), pause=passes / budget)
        return _seen(run, passes / total)


def _seen(run: Run, share: float) -> Glimpse:
    used = {row["step"]: row["passes"] for row in run.table("steps")}
    seen = [(used[row["step"]], row["mean"]) for row in run.table("evaluations")]
    return Glimpse(tuple(p for p, _ in seen), tuple(s for _, s in seen), share, float(run.summary["wall_seconds"]))
