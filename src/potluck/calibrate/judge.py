"""How far predicted tasks are from those of real processes: time, makespan, bytes, memory, order of arrival."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from potluck.calibrate.fit import Memory, Timed
from potluck.runs.certificate import WORDS


@dataclass(frozen=True)
class Course:
    """What happened in one run, real or simulated."""

    tasks: Sequence[Timed]  # accepted ones
    began: float  # when the first was sent
    nbytes: int  # of all payloads, up and down, with notes

    @property
    def makespan(self) -> float:
        return max(task.arrived for task in self.tasks) - self.began

    @property
    def parts(self) -> dict[str, float]:
        """The makespan by what took it: the chain of tasks, each sent after the arrival before it, that ends last.

        Work is by the client's clock, the way is the rest of a task, and the server is what lies between tasks.
        """
        found = {"work": 0.0, "way": 0.0, "server": 0.0}
        last: Timed | None = max(self.tasks, key=lambda task: task.arrived)
        while last is not None:
            sent = last.arrived - last.seconds
            found["work"] += last.worked
            found["way"] += last.seconds - last.worked
            before = [task for task in self.tasks if task.arrived <= sent + 1e-6 and task.arrived < last.arrived]
            last = max(before, key=lambda task: task.arrived, default=None)
            found["server"] += sent - (self.began if last is None else last.arrived)
        return found


@dataclass(frozen=True)
class Judged:
    """The errors of one prediction, relative to the real run. Tasks are matched by client and order."""

    network: str
    method: str
    tasks: int  # that both have
    unmatched: int  # that only one of them has
    task_time: float  # median over tasks
    task_time_90: float  # of nine tasks in ten
    makespan: float
    real_makespan: float  # seconds
    parts: dict[str, float]  # of the makespan: predicted minus real seconds of work, way and server
    work: float  # median over tasks, of the time by the client's own clock
    nbytes: float  # of all payloads, up and down
    nbytes_apart: float  # how far the simulated runs are apart themselves: (most - least) / real
    memory: float  # median over clients, of the peak of the process
    memory_above: float | None  # of what the process grew by, where it grew
    tau: float | None  # of the order of arrival
    real_bytes: int = 0
    simulated_bytes: tuple[int, ...] = ()  # by draw
    repetition: int = 0

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def judged(
    real: Course,
    predicted: Sequence[Course],
    peaks: Mapping[str, int],
    memories: Mapping[str, Memory],
    repetition: int = 0,
) -> Judged:
    """Compare a real run with simulated ones, each with other jitter: their medians are the prediction.

    `peaks`, `memories`: bytes of the clients' processes, and what follows from the fit.
    """
    there = {(task.client, task.order): task for task in real.tasks}
    here = {(task.client, task.order): task for task in _median(predicted)}
    both = sorted(there.keys() & here.keys(), key=lambda key: there[key].arrived)
    errors = np.array([abs(here[key].seconds / there[key].seconds - 1) for key in both])
    moved = np.array([course.nbytes for course in predicted])
    counted = {client: max(task.memory for task in here.values() if task.client == client) for client, _ in here}
    known = [client for client in counted if client in peaks and client in memories]
    memory = [abs(memories[one].peak(counted[one]) / peaks[one] - 1) for one in known]
    grown = {one: peaks[one] - memories[one].process for one in known}
    above = [abs(memories[one].factor * counted[one] / grown[one] - 1) for one in known if grown[one] > 0]
    order = kendalltau([there[key].arrived for key in both], [here[key].arrived for key in both]).statistic
    return Judged(
        network=real.tasks[0].network,
        method=real.tasks[0].method,
        tasks=len(both),
        unmatched=len(there.keys() ^ here.keys()),
        task_time=float(np.median(errors)),
        task_time_90=float(np.quantile(errors, 0.9)),
        makespan=abs(float(np.median([course.makespan for course in predicted])) / real.makespan - 1),
        real_makespan=real.makespan,
        parts={part: float(np.median([one.parts[part] for one in predicted])) - s for part, s in real.parts.items()},
        work=float(np.median([abs(here[key].worked / there[key].worked - 1) for key in both])),
        nbytes=abs(float(np.median(moved)) / real.nbytes - 1),
        nbytes_apart=float(moved.max() - moved.min()) / real.nbytes,
        memory=float(np.median(memory)) if memory else float("nan"),
        memory_above=float(np.median(above)) if above else None,
        tau=None if np.isnan(order) else float(order),
        real_bytes=real.nbytes,
        simulated_bytes=tuple(course.nbytes for course in predicted),
        repetition=repetition,
    )


def over_runs(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """What several real runs of one network and method say together: a single one is also a matter of chance."""
    groups: defaultdict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for run in runs:
        groups[run["method"], run["network"]].append(run)
    return [_together(f"{method} on {network}", each) for (method, network), each in groups.items() if len(each) > 1]


def _together(name: str, runs: Sequence[Mapping[str, Any]]) -> str:
    errors = {words: np.array([100 * run[key] for run in runs]) for key, words in WORDS.items() if key != "nbytes"}
    told = ", ".join(f"{words} {each.mean():.2g} ± {each.std(ddof=1):.2g} %" for words, each in errors.items())
    real = np.array([run["real_bytes"] for run in runs], dtype=float)
    simulated = np.array(runs[0]["simulated_bytes"], dtype=float)
    off = 100 * (simulated.mean() / real.mean() - 1)
    return (
        f"{name}, {len(runs)} real runs: {told}; bytes of {len(simulated)} simulated runs against theirs, means: "
        f"{off:+.2g} % (spread of a run {100 * real.std(ddof=1) / real.mean():.2g} % real, "
        f"{100 * simulated.std(ddof=1) / real.mean():.2g} % simulated)"
    )


def _median(courses: Sequence[Course]) -> list[Timed]:
    """The tasks that most of some runs have, each with its median time, and arrival after the first was sent."""
    found: defaultdict[tuple[str, int], list[tuple[Timed, float]]] = defaultdict(list)
    for course in courses:
        for task in course.tasks:
            found[task.client, task.order].append((task, task.arrived - course.began))
    return [
        replace(
            same[0][0],
            seconds=float(np.median([task.seconds for task, _ in same])),
            worked=float(np.median([task.worked for task, _ in same])),
            arrived=float(np.median([arrived for _, arrived in same])),
        )
        for same in found.values()
        if 2 * len(same) > len(courses)
    ]
