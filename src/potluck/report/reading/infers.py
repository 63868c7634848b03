"""What the clients of a run could infer with: the model they would receive, and their own (`runs.infer`).

Runs of an older version have no such tables: nothing is known of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from potluck.metrics import Metric
from potluck.report.reading.groups import Group
from potluck.report.reading.run_figures import Point, RunFigures
from potluck.runs.record import reading

RECEIVED, OWN = "received", "own"


@dataclass(frozen=True)
class Infers:
    """Of the last evaluation of a run within its budget. Accuracies are means over clients."""

    kind: str  # what the headline is: received, own or mixed
    means: Mapping[str, float]  # headline, received and own, as far as they exist
    trained: Mapping[str, float]  # the same over the clients that trained
    trained_clients: int
    untrained: Mapping[str, str] = field(default_factory=dict)  # clients that never trained -> received or start


def infers(one: RunFigures) -> Infers | None:
    """None for a run that has not been evaluated, or of an older version."""
    return _read(one.folder, one.judged, one.metric) if one.points else None


@lru_cache(maxsize=256)
def _read(folder: Path, step: int, metric: Metric) -> Infers | None:
    at = "step = (SELECT max(step) FROM infers_with WHERE step <= ?)"
    rows = _rows(folder, f"SELECT model, kind, mean, trained_mean, trained_clients FROM infers_with WHERE {at}", step)
    if not rows:
        return None
    means = {row[0]: metric.merit(row[2]) for row in rows}
    trained = {row[0]: metric.merit(row[3]) for row in rows if row[3] is not None}
    untrained = dict(_rows(folder, f"SELECT client, scored_with FROM untrained WHERE {at} ORDER BY client", step))
    return Infers(rows[0][1], means, trained, rows[0][4], untrained)


def with_own_models(one: Group) -> Group | None:
    """The same runs read with the models as training left them; None where that is the headline or does not exist."""
    found = [infers(each) for each in one.runs]
    if not one.runs or any(each is None or each.kind != RECEIVED or OWN not in each.means for each in found):
        return None
    return Group(f"{one.label}, own", one.method, [_own(each) for each in one.runs])


def _own(one: RunFigures) -> RunFigures:
    """A client that never trained has no own model: it keeps the one it is scored with."""
    sql = """SELECT i.mean, i.worst_tenth, i.worst FROM evaluations e
        LEFT JOIN infers_with i ON i.step = e.step AND i.model = 'own'
        WHERE e.mean IS NOT NULL AND e.step <= ? ORDER BY e.step"""
    points: list[Point] = []
    for point, (mean, tenth, worst) in zip(one.points, _rows(one.folder, sql, one.step), strict=True):
        merits = {} if mean is None else {"mean": mean, "worst_tenth": tenth, "worst": worst}
        points.append(replace(point, **{name: one.metric.merit(value) for name, value in merits.items()}))
    last = "model = 'own' AND step = (SELECT max(step) FROM inferred WHERE step <= ?)"
    rows = _rows(one.folder, f"SELECT client, accuracy FROM inferred WHERE {last}", one.judged)
    accuracy = {name: one.metric.merit(value) for name, value in rows}
    clients = [replace(client, accuracy=accuracy.get(client.name, client.accuracy)) for client in one.clients]
    return replace(one, points=points, clients=clients)


def _rows(folder: Path, sql: str, step: int) -> Sequence[tuple]:  # type: ignore[type-arg]
    path = folder / "run.db"
    with reading(path) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'infers_with'").fetchone():
            return []
        return db.execute(sql, (step,)).fetchall()
