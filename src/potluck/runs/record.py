"""run.db: the record of a run in SQLite, which can be queried while the run goes on.

Every row has the `step` (the number of yielded states) at which it was written. So a resumed run can delete what a
killed run wrote after its last checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from potluck.engines.log import UNFIT, Event, TaskRecord
from potluck.errors import BadInput, Code
from potluck.files import cannot_write

if TYPE_CHECKING:
    from potluck.runs.evaluation import ByClass

# A task's outcome as it is shown: a client with too little memory is unfit, not lost.
OUTCOME = f"CASE WHEN outcome = 'lost' AND reason LIKE '{UNFIT}%' THEN 'unfit' ELSE outcome END"
SCHEMA = """
CREATE TABLE IF NOT EXISTS clients (client TEXT PRIMARY KEY, device TEXT, link TEXT, kind TEXT, partner TEXT,
    train INTEGER, test INTEGER);
CREATE TABLE IF NOT EXISTS steps (step INTEGER PRIMARY KEY, round INTEGER, virtual REAL, wall REAL, at_work INTEGER,
    bytes_up INTEGER, bytes_down INTEGER, macs REAL, joules REAL, passes REAL);
CREATE TABLE IF NOT EXISTS evaluations (step INTEGER PRIMARY KEY, mean REAL, std REAL, worst REAL, best REAL,
    worst_tenth REAL, loss REAL, global REAL);
CREATE TABLE IF NOT EXISTS accuracies (step INTEGER, client TEXT, accuracy REAL, loss REAL, samples INTEGER,
    PRIMARY KEY (step, client)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS infers_with (step INTEGER, model TEXT, kind TEXT, mean REAL, std REAL, worst REAL,
    best REAL, worst_tenth REAL, loss REAL, trained_mean REAL, trained_std REAL, trained_worst REAL, trained_best REAL,
    trained_worst_tenth REAL, clients INTEGER, trained_clients INTEGER, PRIMARY KEY (step, model)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS inferred (step INTEGER, model TEXT, client TEXT, accuracy REAL, loss REAL,
    PRIMARY KEY (step, model, client)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS untrained (step INTEGER, client TEXT, scored_with TEXT,
    PRIMARY KEY (step, client)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tasks (step INTEGER, number INTEGER, client TEXT, program TEXT, sent REAL, started REAL,
    trained REAL, arrived REAL, bytes_down INTEGER, bytes_up INTEGER, bytes_handoff INTEGER, macs REAL, memory INTEGER,
    joules REAL, outcome TEXT, reason TEXT, passes REAL, train_joules REAL, radio_joules REAL,
    ops REAL, recorded REAL, moved REAL, fresh REAL, waited REAL);
CREATE TABLE IF NOT EXISTS events (step INTEGER, virtual REAL, kind TEXT, client TEXT, detail TEXT);
CREATE TABLE IF NOT EXISTS clusters (step INTEGER, client TEXT, cluster INTEGER,
    PRIMARY KEY (step, client)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS records (step INTEGER, name TEXT, value TEXT, PRIMARY KEY (step, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS task (name TEXT PRIMARY KEY, value TEXT);
CREATE TABLE IF NOT EXISTS scores (step INTEGER, metric TEXT, mean REAL, std REAL, worst REAL, best REAL,
    worst_tenth REAL, global REAL, PRIMARY KEY (step, metric)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS classes (class INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE IF NOT EXISTS held (client TEXT PRIMARY KEY, train TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS by_class (step INTEGER, client TEXT, test TEXT, correct TEXT,
    PRIMARY KEY (step, client)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS tasks_step ON tasks (step);
CREATE INDEX IF NOT EXISTS events_step ON events (step);
"""
_LATER = (  # columns that older databases lack
    ("steps", "passes"),
    ("tasks", "passes"),
    ("tasks", "train_joules"),
    ("tasks", "radio_joules"),
    ("tasks", "ops"),
    ("tasks", "recorded"),
    ("tasks", "moved"),
    ("tasks", "fresh"),
    ("tasks", "waited"),
)
_STEPPED = (
    "steps", "evaluations", "accuracies", "tasks", "events", "clusters", "records", "by_class", "infers_with",
    "inferred", "untrained", "scores",
)  # fmt: skip
_OF_STEPS = ("steps", "tasks", "events")  # the others belong to evaluations, which may come after their step
_TASKS = f"INSERT INTO tasks VALUES ({','.join('?' * (1 + len(TaskRecord._fields)))})"
_NOTHING = (0, 0, 0.0, 0.0, 0.0)  # bytes up, bytes down, MACs, joules, passes
SPREAD = ("mean", "std", "worst", "best", "worst_tenth")
HELD = 0.2  # seconds between commits of quick steps: a commit takes as long as an arrival of a small network
MOST_CELLS = 50_000  # clients times classes kept of every evaluation; of larger ones only the last is kept


@dataclass(frozen=True)
class StepRecord:
    """One step of a run, as it is recorded."""

    step: int
    round: int
    virtual: float
    wall: float
    at_work: int
    tasks: Sequence[TaskRecord]
    events: Sequence[Event]


@dataclass(frozen=True)
class EvaluationRecord:
    """The evaluation of a step, as it is recorded."""

    figures: Mapping[str, Any]
    accuracies: Iterable[tuple[str, float, float, int]]  # client, headline score, loss, test samples
    by_class: tuple[Sequence[str], ByClass] | None = None
    clusters: Mapping[str, int] = field(default_factory=dict)
    records: Mapping[str, Any] = field(default_factory=dict)  # the method's own figures
    infers: Infers | None = None  # what else the clients could infer with
    others: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # other metrics of the task -> figures


@dataclass(frozen=True)
class Infers:
    """The figures by what clients infer with: headline, received, own (`runs.infer`)."""

    kind: str  # what the headline is: received, own or mixed
    figures: Mapping[str, Mapping[str, Any]]  # model -> figures over all clients, and `trained` over those that trained
    having: Mapping[str, int]  # model -> clients that have one
    rows: Iterable[tuple[str, str, float, float]]  # model, client, accuracy, loss; without those of the headline
    untrained: Mapping[str, str]  # client -> received or start
    trained: int  # clients that trained


class Recorder:
    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(SCHEMA)
        for table, column in _LATER:
            if column not in {row[1] for row in self._db.execute(f"PRAGMA table_info({table})")}:
                self._db.execute(f"ALTER TABLE {table} ADD COLUMN {column} REAL")
        self._totals = list(_NOTHING)
        self._digest = (-1, "")  # the step up to which the rows are in the digest, and the digest
        self._committed = 0.0  # when, by the monotonic clock

    def close(self) -> None:
        with suppress(sqlite3.Error):  # closed already, or what it cannot write has been told
            self.commit()
        self._db.close()

    def _begin(self) -> None:
        if not self._db.in_transaction:
            self._db.execute("BEGIN")

    def commit(self) -> None:
        """Let others read what is written so far."""
        if self._db.in_transaction:
            self._db.execute("COMMIT")
        self._committed = time.monotonic()

    def rewind(self, step: int, measured: int | None = None) -> None:
        """Delete everything written after a step, and every evaluation after the step `measured`."""
        judged = step if measured is None else min(step, max(0, measured))
        self._begin()
        for table in _STEPPED:
            last = step if table in _OF_STEPS else judged
            self._db.execute(f"DELETE FROM {table} WHERE step > ?", (last,))
        self.commit()
        self._digest = (-1, "")
        row = self._db.execute(
            "SELECT bytes_up, bytes_down, macs, joules, coalesce(passes, 0.0) FROM steps ORDER BY step DESC LIMIT 1"
        ).fetchone()
        self._totals = list(row or _NOTHING)

    def seal(self, step: int) -> str:
        """Flush all rows to disk, and return the digest of those up to a step. A checkpoint comes after its rows."""
        self.commit()
        before, found = self._digest
        self._digest = (step, digest(self._db, found, before, step))
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        self._db.execute("PRAGMA synchronous=FULL")  # this commit flushes the log, and with it all commits before
        self._db.execute(f"PRAGMA user_version={(version + 1) % (1 << 31)}")
        self._db.execute("PRAGMA synchronous=NORMAL")
        return self._digest[1]

    def clients(self, rows: Iterable[tuple[str, str, str, str, str | None, int, int]]) -> None:
        self._begin()
        self._db.executemany("INSERT OR REPLACE INTO clients VALUES (?,?,?,?,?,?,?)", rows)
        self.commit()

    def task(self, task: Mapping[str, Any]) -> None:
        """Write what is learned, for readers of a run that is not finished; a run that ranks by accuracy has none."""
        rows = ((name, json.dumps(value)) for name, value in task.items())
        self._db.executemany("INSERT OR REPLACE INTO task VALUES (?,?)", rows)

    def count(self, tasks: Sequence[TaskRecord], holders: int) -> None:
        """Add tasks to the totals. Passes are the mean over the clients that hold training samples."""
        totals = self._totals
        totals[0] += sum(task.bytes_up for task in tasks)
        totals[1] += sum(task.bytes_down for task in tasks)
        totals[2] += sum(task.macs for task in tasks)
        totals[3] += sum(task.joules for task in tasks)
        totals[4] += sum(task.passes for task in tasks if task.outcome == "accepted") / max(1, holders)

    def evaluation(self, step: int, found: EvaluationRecord) -> None:
        """Write the evaluation of a step that is already written."""
        self._begin()
        self._evaluation(step, found)
        self.commit()

    def step(self, step: StepRecord, evaluation: EvaluationRecord | None = None) -> None:
        """Write one step, whose tasks are counted. Steps that follow each other quickly share a transaction."""
        self._begin()
        try:
            self._step(step, evaluation)
        except BaseException:  # no half of a step may be committed later
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        if time.monotonic() - self._committed >= HELD:
            self.commit()

    def _step(self, step: StepRecord, evaluation: EvaluationRecord | None) -> None:
        db, number = self._db, step.step
        row = (number, step.round, step.virtual, step.wall, step.at_work, *self._totals)
        db.execute("INSERT INTO steps VALUES (?,?,?,?,?,?,?,?,?,?)", row)
        if step.tasks:
            db.executemany(_TASKS, [(number, *task) for task in step.tasks])
        if step.events:
            self._events(number, step.events)
        if evaluation is not None:
            self._evaluation(number, evaluation)

    def events(self, step: int, events: Sequence[Event]) -> None:
        """Write what happened after a step that is already written."""
        self._begin()
        self._events(step, events)
        self.commit()

    def _events(self, step: int, events: Sequence[Event]) -> None:
        rows = ((step, e.at, e.kind, e.client, e.detail) for e in events)
        self._db.executemany("INSERT INTO events VALUES (?,?,?,?,?)", rows)

    def _evaluation(self, step: int, found: EvaluationRecord) -> None:
        db = self._db
        columns = ("mean", "std", "worst", "best", "worst_tenth", "loss", "global")
        values = (step, *(found.figures[name] for name in columns))
        db.execute("INSERT INTO evaluations VALUES (?,?,?,?,?,?,?,?)", values)
        db.executemany("INSERT INTO accuracies VALUES (?,?,?,?,?)", ((step, *row) for row in found.accuracies))
        if found.by_class is not None:
            self._classes(step, *found.by_class)
        if found.infers is not None:
            self._infers(step, found.infers)
        for metric, spread in found.others.items():
            row = (step, metric, *(spread[name] for name in (*SPREAD, "global")))
            db.execute("INSERT INTO scores VALUES (?,?,?,?,?,?,?,?)", row)
        db.executemany("INSERT INTO clusters VALUES (?,?,?)", ((step, c, k) for c, k in found.clusters.items()))
        rows = ((step, name, json.dumps(value)) for name, value in found.records.items())
        db.executemany("INSERT INTO records VALUES (?,?,?)", rows)

    def _infers(self, step: int, found: Infers) -> None:
        db, marks = self._db, ",".join("?" * 16)
        for model, all_of in found.figures.items():
            over = [all_of[name] for name in SPREAD]
            over += [all_of["loss"], *(all_of["trained"][name] for name in SPREAD)]
            row = (step, model, found.kind, *over, found.having[model], found.trained)
            db.execute(f"INSERT INTO infers_with VALUES ({marks})", row)
        db.executemany("INSERT INTO inferred VALUES (?,?,?,?,?)", ((step, *row) for row in found.rows))
        db.executemany("INSERT INTO untrained VALUES (?,?,?)", ((step, *row) for row in found.untrained.items()))

    def _classes(self, step: int, clients: Sequence[str], found: ByClass) -> None:
        """Write lists of counts by class: training rows (once), test rows and right answers (at every evaluation)."""
        db = self._db
        if not db.execute("SELECT 1 FROM held LIMIT 1").fetchone():
            db.executemany("INSERT OR REPLACE INTO classes VALUES (?,?)", enumerate(found.names))
            db.executemany("INSERT INTO held VALUES (?,?)", zip(clients, _lists(found.train), strict=True))
        if found.right.size > MOST_CELLS:
            db.execute("DELETE FROM by_class")
        rows = zip(clients, _lists(found.test), _lists(found.right), strict=True)
        db.executemany("INSERT INTO by_class VALUES (?,?,?,?)", ((step, *row) for row in rows))

    @property
    def totals(self) -> dict[str, float]:
        return dict(zip(("bytes_up", "bytes_down", "macs", "joules", "passes"), self._totals, strict=True))

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._db.execute(sql, values).fetchall()


def _lists(counts: NDArray[Any]) -> list[str]:
    """Each row of whole numbers as JSON, cut from one text: a call for each row takes ten times as long."""
    if not counts.size:
        return ["[]"] * len(counts)
    text = json.dumps(counts.tolist(), separators=(",", ":"))
    return [f"[{row}]" for row in text[2:-2].split("],[")]


@contextmanager
def recording(path: Path) -> Iterator[Recorder]:
    """Open the database of a run that is being carried out; what SQLite cannot do raises BadInput."""
    recorder = None
    try:
        recorder = Recorder(path)
        yield recorder
        recorder.commit()
    except sqlite3.Error as error:
        name = str(getattr(error, "sqlite_errorname", ""))
        if name.startswith(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN")):
            raise cannot_write(path.parent, error) from error
        raise Unreadable(Code.RUN_DAMAGED, f"run: {str(path)!r} cannot be used ({error}).") from error
    finally:
        if recorder is not None:
            recorder.close()


def digest(db: sqlite3.Connection, before: str, after: int, until: int) -> str:
    """Continue a digest over the steps in (after, until]: each row of `steps`, and its number of tasks."""
    tasks = "(SELECT count(*) FROM tasks WHERE step = s.step)"
    sql = f"SELECT s.*, {tasks} FROM steps AS s WHERE s.step > ? AND s.step <= ? ORDER BY s.step"
    for row in db.execute(sql, (after, until)):
        before = hashlib.blake2b(f"{before}{row!r}".encode(), digest_size=16).hexdigest()
    return before


def read(path: Path, sql: str, *values: Any) -> list[dict[str, Any]]:
    """Read rows of a run's database without disturbing its writer."""
    with reading(path) as db:
        db.row_factory = sqlite3.Row
        return [dict(row) for row in db.execute(sql, values)]


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a run's database for several queries. Queries in one transaction see one moment of the run."""
    db = None
    try:
        db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None)
        yield db
    except sqlite3.Error as error:
        raise Unreadable(Code.RUN_DAMAGED, f"run: {str(path)!r} cannot be read ({error}).") from error
    finally:
        if db is not None:
            db.close()


class Unreadable(BadInput):
    """A run's database that is not there, damaged, or of another version."""
