"""How far predicted tasks are from those of real processes: time, makespan, bytes, memory, order of arrival."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from potluck.calibrate.fit import Timed


@dataclass(frozen=True)
class Judged:
    """The errors of one run, relative to the real one. Tasks are matched by client and order."""

    network: str
    method: str
    tasks: int  # that both have
    unmatched: int  # that only one of them has
    task_time: float  # median over tasks
    task_time_90: float  # of nine tasks in ten
    makespan: float
    real_makespan: float  # seconds
    nbytes: float  # of all payloads, up and down
    memory: float  # median over clients, of the peak of the process
    memory_above: float | None  # of what the process grew by, where it grew
    tau: float | None  # of the order of arrival

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def judged(
    real: Sequence[Timed],
    predicted: Sequence[Timed],
    peaks: Mapping[str, int],
    bases: Mapping[str, int],
    began: tuple[float, float] = (0.0, 0.0),
) -> Judged:
    """Compare two runs. `peaks`, `bases`: bytes of the clients' processes; `began`: when the first tasks were sent."""
    there, here = ({(task.client, task.order): task for task in tasks} for tasks in (real, predicted))
    both = sorted(there.keys() & here.keys(), key=lambda key: there[key].arrived)
    errors = np.array([abs(here[key].seconds / there[key].seconds - 1) for key in both])
    makespans = [
        max(task.arrived for task in tasks) - first for tasks, first in zip((real, predicted), began, strict=True)
    ]
    moved = [sum(task.bytes_up + task.bytes_down for task in tasks) for tasks in (real, predicted)]
    counted = {
        client: max(t.memory for t in predicted if t.client == client) for client in {t.client for t in predicted}
    }
    known = [client for client in counted if client in peaks and client in bases]
    memory = [abs((bases[one] + counted[one]) / peaks[one] - 1) for one in known]
    above = [abs(counted[one] / (peaks[one] - bases[one]) - 1) for one in known if peaks[one] > bases[one]]
    order = kendalltau([there[key].arrived for key in both], [here[key].arrived for key in both]).statistic
    return Judged(
        network=real[0].network,
        method=real[0].method,
        tasks=len(both),
        unmatched=len(there.keys() ^ here.keys()),
        task_time=float(np.median(errors)),
        task_time_90=float(np.quantile(errors, 0.9)),
        makespan=abs(makespans[1] / makespans[0] - 1),
        real_makespan=makespans[0],
        nbytes=abs(moved[1] / moved[0] - 1),
        memory=float(np.median(memory)) if memory else float("nan"),
        memory_above=float(np.median(above)) if above else None,
        tau=None if np.isnan(order) else float(order),
    )
