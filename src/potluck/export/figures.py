"""What every format exports of a run: figures at each evaluation, figures of the whole run, and its settings."""

from __future__ import annotations

import json
from typing import Any

from potluck.report.reading.run_figures import run_figures
from potluck.runs.record import read
from potluck.runs.results import Run

_COSTS = {  # exported name -> column of run.db; the name has the unit, if there is one
    "loss/mean": "loss",
    "cost/virtual_seconds": "virtual",
    "cost/bytes_up": "bytes_up",
    "cost/bytes_down": "bytes_down",
    "cost/joules": "joules",
    "cost/macs": "macs",
}


_SCORES = ("mean", "worst_tenth", "worst", "best", "global")


def columns(run: Run) -> dict[str, str]:
    """Exported name -> column of run.db; scores have the name of the run's metric."""
    return {f"{run.metric.name}/{name}": name for name in _SCORES} | _COSTS


def evaluations(run: Run) -> list[dict[str, Any]]:
    """All evaluations in order, each with the costs up to it."""
    path = run.folder / "run.db"
    if not path.exists():
        return []
    return read(path, "SELECT * FROM evaluations JOIN steps USING (step) ORDER BY step")


def whole(run: Run) -> dict[str, Any]:
    """One row about a run: its state, its accuracy and its costs."""
    one = run_figures(run)
    last = one.last
    return {
        "run": run.name,
        "method": str(one.experiment.method["name"]),
        "data": one.experiment.data.source,
        "seed": one.seed,
        "state": one.state,
        "rounds": one.rounds,
        one.metric.name: one.metric.merit(last.mean) if last else None,
        "worst_tenth": one.metric.merit(last.worst_tenth) if last else None,
        "worst": one.metric.merit(last.worst) if last else None,
        "virtual_seconds": one.virtual,
        "bytes_up": one.bytes_up,
        "bytes_down": one.bytes_down,
        "joules": one.joules,
        "all_joules": one.all_joules,
        "idle_share": one.idle_share,
        "macs": one.macs,
        "refused": one.refused,
        "lost": one.lost,
        "unfit": len(one.unfit),
    }


def settings(run: Run) -> dict[str, str]:
    """The experiment as section.key -> value."""
    values = run.experiment.model_dump(exclude_none=True)
    return {
        f"{section}.{name}": value if isinstance(value, str) else json.dumps(value, default=str)
        for section, part in values.items()
        for name, value in part.items()
    }
