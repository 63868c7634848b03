"""One run for the live page: reads run.db as it grows, and knows what each client did at any moment."""

from __future__ import annotations

import json
import sqlite3
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from potluck.metrics import ACCURACY, Metric
from potluck.runs.compare import state_of
from potluck.runs.record import OUTCOME, reading
from potluck.runs.results import Run

TROUBLES = ("refused", "repeat", "lost", "late", "unfit")
MOST_TROUBLES = 14  # shown at once
WAITING, RECEIVING, TRAINING, SENDING, ANSWERED, REFUSED, LOST, UNFIT, NEVER = "wdtuarxn-"

Floats = NDArray[np.float64]


@dataclass
class Columns:
    """What has been read so far; tasks in the order their updates arrived."""

    last: int = 0
    mark: tuple[Any, ...] | None = None  # of the last step; if it changes, the run was resumed from an earlier step
    steps: list[tuple[Any, ...]] = field(default_factory=list)  # step, round, virtual, at_work
    means: dict[int, float] = field(default_factory=dict)
    accuracies: dict[int, Floats] = field(default_factory=dict)
    place: dict[str, int] = field(default_factory=dict)
    clients: list[dict[str, Any]] = field(default_factory=list)
    who: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    times: Floats = field(default_factory=lambda: np.zeros((0, 4)))  # sent, started, trained, arrived
    outcome: NDArray[np.str_] = field(default_factory=lambda: np.zeros(0, "U8"))
    troubles: list[tuple[float, str, str, str]] = field(default_factory=list)  # time, client, outcome, reason
    unfit: dict[int, float] = field(default_factory=dict)  # since when


class Follower:
    """Keeps nothing that is not in the run's folder, so the server can be restarted at any time."""

    def __init__(self, folder: Path) -> None:
        self.run = Run(folder)
        self._columns = Columns()
        self._lock = threading.Lock()
        self._about: dict[str, Any] | None = None

    def head(self) -> dict[str, Any]:
        """The progress of the run; small enough to be sent at every change."""
        with self._lock:
            found = self._read_on()
            about = self._described()
            step, round, virtual, at_work = found.steps[-1] if found.steps else (0, 0, 0.0, 0)
            told = [what for _, _, what, _ in found.troubles]
            return {
                **about,
                "state": state_of(self.run),
                "clock": self.run.clock,
                "step": step,
                "round": round,
                "virtual": virtual,
                "at_work": at_work,
                "accuracy": found.means[max(found.means)] if found.means else None,
                "clients": len(found.clients),
                "refused": sum(what in ("refused", "repeat") for what in told),
                "lost": sum(what == "lost" for what in told),
                "unfit": len(found.unfit),
            }

    def roster(self) -> list[dict[str, Any]]:
        """The clients in the order of the tiles, sorted by device."""
        with self._lock:
            return self._read_on().clients

    def moment(self, at: float | None) -> dict[str, Any]:
        """What each client did at a moment of virtual time, and its accuracy; the latest moment if `until` is None."""
        with self._lock:
            found = self._read_on()
        moments = [row[2] for row in found.steps]
        now = (moments[-1] if moments else 0.0) if at is None else at
        k = int(np.searchsorted(moments, now, side="right")) - 1  # the last step by then
        since = moments[k - 1] if k > 0 else 0.0
        step, round, *_ = found.steps[k] if k >= 0 else (0, 0)
        evaluated = [s for s in found.means if s <= step]
        shares = found.accuracies[max(evaluated)] if evaluated else np.full(len(found.clients), np.nan)
        told = [one for one in found.troubles if one[0] <= now]
        return {
            "at": now,
            "step": step,
            "round": round,
            "accuracy": found.means[max(evaluated)] if evaluated else None,
            "tiles": _tiles(found, now, since if k >= 0 else 0.0),
            "shares": [-1 if np.isnan(share) else round_(share, self.run.metric) for share in shares],
            "refused": sum(what in ("refused", "repeat") for _, _, what, _ in told),
            "lost": sum(what == "lost" for _, _, what, _ in told),
            "unfit": sum(since <= now for since in found.unfit.values()),
            "troubles": [
                {"at": when, "client": who, "what": what, "why": why} for when, who, what, why in told[-MOST_TROUBLES:]
            ][::-1],
        }

    def _described(self) -> dict[str, Any]:
        if self._about is None:
            experiment = self.run.experiment
            self._about = {
                "name": self.run.name,
                "method": str(experiment.method["name"]),
                "data": experiment.data.source,
                "seed": experiment.run.seed,
                "rounds": experiment.stop.rounds,
                "seconds": experiment.stop.virtual_seconds,
                "metric": {"words": self.run.metric.words, "share": self.run.metric.share},
            }
        return self._about

    def _read_on(self) -> Columns:
        path = self.run.folder / "run.db"
        if not path.exists():
            return self._columns
        with reading(path) as db:
            db.execute("BEGIN")
            if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'events'").fetchone():
                return self._columns
            self._columns = _read(db, self._columns)
        return self._columns


def round_(score: float, metric: Metric = ACCURACY) -> float:
    """Whole per cent of a share, three digits of another score."""
    return max(0, int(100 * score + 0.5)) if metric.share else float(f"{score:.3g}")


def _read(db: sqlite3.Connection, known: Columns) -> Columns:
    """Read what is new; everything if the run was resumed from an earlier step."""
    if known.last:
        again = db.execute("SELECT virtual, wall FROM steps WHERE step = ?", (known.last,)).fetchone()
        if again != known.mark:
            known = Columns()
    latest = db.execute("SELECT step, virtual, wall FROM steps ORDER BY step DESC LIMIT 1").fetchone()
    if not known.clients:
        known = _roster(db)
    if latest is None or latest[0] == known.last:
        return known
    since = (known.last,)
    steps = db.execute(
        "SELECT step, round, virtual, at_work FROM steps WHERE step > ? ORDER BY step",
        since,
    ).fetchall()
    means = dict(db.execute("SELECT step, mean FROM evaluations WHERE step > ? AND mean IS NOT NULL", since).fetchall())
    shares = {step: np.full(len(known.clients), np.nan) for step in means}
    for step, client, accuracy in db.execute("SELECT step, client, accuracy FROM accuracies WHERE step > ?", since):
        if client in known.place and step in shares:
            shares[step][known.place[client]] = np.nan if accuracy is None else accuracy
    tasks = db.execute(
        f"SELECT client, sent, started, trained, arrived, {OUTCOME}, reason FROM tasks "
        "WHERE step > ? AND outcome != 'post'",
        since,
    ).fetchall()
    unfit = {
        known.place[client]: at
        for client, at in db.execute(
            "SELECT client, virtual FROM events WHERE kind = 'does-not-fit' AND step > ?", since
        )
        if client in known.place
    }
    # A repeat is an update that arrived twice: it is listed as trouble, but took no work.
    mine = [row for row in tasks if row[0] in known.place and row[5] != "repeat"]
    who = np.concatenate([known.who, np.array([known.place[row[0]] for row in mine], np.int64)])
    times = np.concatenate([known.times, np.array([row[1:5] for row in mine], float).reshape(-1, 4)])
    outcome = np.concatenate([known.outcome, np.array([row[5] for row in mine], "U8")])
    order = np.argsort(times[:, 3], kind="stable")
    troubles = [(row[4], row[0], row[5], row[6] or "") for row in tasks if row[5] in TROUBLES]
    return Columns(
        last=latest[0],
        mark=(latest[1], latest[2]),
        steps=known.steps + steps,
        means=known.means | means,
        accuracies=known.accuracies | shares,
        place=known.place,
        clients=known.clients,
        who=who[order],
        times=times[order],
        outcome=outcome[order],
        troubles=sorted(known.troubles + troubles, key=lambda one: one[0]),
        unfit=known.unfit | unfit,
    )


def _roster(db: sqlite3.Connection) -> Columns:
    rows = db.execute(
        "SELECT client, coalesce(device, ''), coalesce(link, ''), train, test FROM clients ORDER BY device, client"
    ).fetchall()
    names = ("name", "device", "link", "train", "test")
    clients = [dict(zip(names, row, strict=True)) for row in rows]
    return Columns(clients=clients, place={row[0]: i for i, row in enumerate(rows)})


def _tiles(found: Columns, now: float, since: float) -> str:
    """A letter for each client: what it does now, or the outcome of its last task."""
    letters = np.full(len(found.clients), NEVER, dtype="U1")
    sent, started, trained, arrived = found.times.T
    over = arrived <= now
    last = np.full(len(found.clients), -1)
    last[found.who[over]] = np.flatnonzero(over)  # tasks are in order of arrival, so the last one of each client stays
    for letter, outcome in ((REFUSED, "refused"), (LOST, "lost"), (LOST, "late"), (WAITING, "accepted")):
        letters[(last >= 0) & (found.outcome[last] == outcome) if len(found.outcome) else []] = letter
    fresh = (last >= 0) & (letters == WAITING)
    fresh[fresh] = arrived[last[fresh]] > since
    letters[fresh] = ANSWERED
    busy = (sent <= now) & ~over
    phase = np.where(started > now, RECEIVING, np.where(trained > now, TRAINING, SENDING))
    letters[found.who[busy]] = phase[busy]
    for client, moment in found.unfit.items():
        if moment <= now:
            letters[client] = UNFIT
    return "".join(letters.tolist())


def dumped(value: Any) -> str:
    """Compact JSON without NaN, which browsers reject."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
