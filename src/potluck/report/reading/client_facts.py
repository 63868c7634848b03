"""What a run recorded about each client: its costs, classes, clusters and tasks.

Each table is read only when it is shown, because an asynchronous run may have a million tasks. Everything is as of one
step, so that the same charts serve a finished run, a running one, and any earlier moment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from potluck.report.reading.run_figures import RunFigures
from potluck.runs.record import OUTCOME, reading

MOST_MOMENTS = 120  # shown of the history of clusters
DONE = "('accepted', 'refused', 'late')"  # outcomes of tasks that were carried out

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Work:
    """The tasks and costs of one client in one run."""

    tasks: int
    counted: int  # accepted updates
    lost: int
    receiving: float  # seconds in sum, over the tasks that were carried through
    training: float
    sending: float
    bytes_up: float
    bytes_down: float
    macs: float
    joules: float  # 0 where energy is not known
    memory: int
    troubles: Mapping[str, int]  # reason -> times, the most frequent first

    @property
    def seconds(self) -> float | None:
        """Of one task, from its sending to its answer's arrival; the lost ones never came to that."""
        done = self.tasks - self.lost
        return (self.receiving + self.training + self.sending) / done if done else None


@dataclass(frozen=True)
class Classes:
    """Samples of every client by class: to train on, to test on, and correct at the last evaluation."""

    names: list[str]
    train: dict[str, list[int]]
    test: dict[str, list[int]]
    right: dict[str, list[int]]


@dataclass(frozen=True)
class Clusters:
    moments: list[float]  # virtual time
    of: dict[str, list[int | None]]  # client -> its cluster at each moment; None before it had one


@dataclass(frozen=True)
class Tasks:
    """All tasks as columns, in the order they were sent; a post is a task without an update."""

    client: list[str]
    sent: Floats
    started: Floats
    trained: Floats
    arrived: Floats
    outcome: list[str]


def work(one: RunFigures) -> dict[str, Work]:
    rows = _rows(
        one,
        f"""SELECT client, sum(outcome NOT IN ('post', 'repeat')), sum(outcome = 'accepted'), sum(outcome = 'lost'),
               sum((started - sent) * (outcome IN {DONE})), sum((trained - started) * (outcome IN {DONE})),
               sum((arrived - trained) * (outcome IN {DONE})), sum(bytes_up), sum(bytes_down), sum(macs),
               {"sum(joules)" if one.metered else 0.0},
               coalesce(max(memory), 0)
        FROM tasks WHERE step <= ? GROUP BY client""",
    )
    troubles: dict[str, dict[str, int]] = {}
    for client, reason, times in _rows(
        one,
        """SELECT client, coalesce(nullif(reason, ''), outcome), count(*) FROM tasks
        WHERE outcome NOT IN ('accepted', 'post') AND step <= ? GROUP BY 1, 2 ORDER BY 3 DESC""",
    ):
        troubles.setdefault(client, {})[reason] = times
    return {str(row[0]): Work(*row[1:], troubles.get(row[0], {})) for row in rows}  # type: ignore[call-arg]


def classes(one: RunFigures) -> Classes | None:
    """None if the run recorded no classes, or has not been evaluated yet."""
    if not _has(one, "by_class"):
        return None
    names = [str(name) for (name,) in _rows(one, "SELECT name FROM classes WHERE ? ORDER BY class")]
    found = _rows(
        one,
        """SELECT client, train, test, correct FROM by_class JOIN held USING (client)
        WHERE step = (SELECT max(step) FROM by_class WHERE step <= ?)""",
    )
    if not found:
        return None
    train, test, right = ({row[0]: json.loads(row[i]) for row in found} for i in (1, 2, 3))
    return Classes(names, train, test, right)


def clusters(one: RunFigures) -> Clusters | None:
    """The history of the clusters, thinned out if it is long; None without clusters."""
    steps = _rows(
        one,
        """SELECT step, virtual FROM steps
        WHERE step IN (SELECT DISTINCT step FROM clusters) AND step <= ? ORDER BY step""",
    )
    if not steps:
        return None
    if len(steps) > MOST_MOMENTS:
        chosen = np.unique(np.linspace(0, len(steps) - 1, MOST_MOMENTS).round().astype(int))
        steps = [steps[i] for i in chosen]
    place = {step: i for i, (step, _) in enumerate(steps)}
    of: dict[str, list[int | None]] = {}
    marks = ",".join(map(str, place))  # integers from the database, so safe in SQL
    for step, client, cluster in _rows(
        one, f"SELECT step, client, cluster FROM clusters WHERE step IN ({marks}) AND step <= ?"
    ):
        of.setdefault(client, [None] * len(steps))[place[step]] = cluster
    return Clusters([virtual for _, virtual in steps], of)


def record_of(one: RunFigures, names: Sequence[str]) -> dict[str, str]:
    """The newest of the method's own figures of these names, as JSON texts."""
    marks = ",".join(f"'{name}'" for name in names)  # names of the report's own, so safe in SQL
    rows = _rows(one, f"SELECT name, value FROM records WHERE name IN ({marks}) AND step <= ? ORDER BY step")
    return {name: str(value) for name, value in rows}


def tasks(one: RunFigures) -> Tasks:
    rows = _rows(
        one,
        f"SELECT client, sent, started, trained, arrived, {OUTCOME} FROM tasks WHERE step <= ? AND outcome != 'repeat' "
        "ORDER BY sent, number",
    )
    times = np.array([row[1:5] for row in rows], dtype=float).reshape(len(rows), 4)
    sent, started, trained, arrived = times.T
    return Tasks([row[0] for row in rows], sent, started, trained, arrived, [row[5] for row in rows])


def unfit(one: RunFigures) -> dict[str, str]:
    """Why clients were unfit to train."""
    return dict(_rows(one, "SELECT client, detail FROM events WHERE kind = 'does-not-fit' AND step <= ?"))


def _has(one: RunFigures, table: str) -> bool:
    return bool(_rows(one, f"SELECT 1 FROM sqlite_master WHERE name = '{table}' AND ?"))


def _rows(one: RunFigures, sql: str) -> list[tuple[Any, ...]]:
    """Run a query whose one parameter is the last step that counts; no rows before the first step."""
    path = one.folder / "run.db"
    if not one.step:
        return []
    with reading(path) as db:
        return db.execute(sql, (one.step,)).fetchall()
