"""The figures of one run, read from its folder whether it is finished, interrupted or still running.

Figures come from run.db, which is written while the run goes on. summary.json adds why the run ended, and the versions.
It counts only if it is about the last step of the database: a run that was resumed and killed has an old summary.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from potluck.errors import BadInput, Code
from potluck.metrics import ACCURACY, METRICS, Metric
from potluck.runs.certificate import NOT_HARDWARE
from potluck.runs.engines import ENGINES
from potluck.runs.experiment import Experiment
from potluck.runs.limits import KINDS
from potluck.runs.record import reading
from potluck.runs.results import Run


@dataclass(frozen=True)
class Point:
    """One evaluation, and the costs up to it."""

    round: float
    virtual: float
    bytes: float
    joules: float
    passes: float | None  # local passes; None where an older release did not count them
    mean: float
    worst_tenth: float
    worst: float


@dataclass(frozen=True)
class Client:
    """One evaluated client; `accuracy` is None until the first evaluation."""

    name: str
    device: str
    link: str
    train: int
    test: int
    accuracy: float | None


@dataclass(frozen=True)
class Spent:
    """The costs of all clients with one kind of device; `device` is None for clients that were never evaluated."""

    device: str | None
    tasks: int
    seconds: float  # the sum over the tasks that were carried out
    carried: int
    bytes_up: float
    bytes_down: float
    macs: float
    joules: float
    memory: int  # the most that a training needed


@dataclass(frozen=True)
class Trouble:
    """Updates that did not count, of one kind and for one reason."""

    outcome: str  # refused, repeat, lost, late, or unfit (too little memory to train)
    reason: str
    times: int
    example: str


@dataclass(frozen=True)
class RunFigures:
    folder: Path
    experiment: Experiment
    toml: str
    state: str  # finished, interrupted or unfinished
    ended: str  # the reason, in words
    step: int  # the last step that counts
    judged: int  # the step of the last evaluation within the budget of the run
    rounds: int
    virtual: float
    bytes_up: float
    bytes_down: float
    macs: float
    joules: float
    passes: float | None  # local passes; None where they were not counted
    within: int  # how many of the points are within the budget of the run
    idle_joules: float | None  # waiting awake; known once there is a summary
    clock: str  # virtual, or wall for a run on Flower
    metered: bool  # whether its energy is known
    refused: int
    lost: int
    unfit: frozenset[str]  # clients with too little memory to train
    fleet: int | None  # all clients, of which `clients` may be a sample
    model: str | None
    versions: dict[str, str]
    points: list[Point]
    clients: list[Client]
    spent: list[Spent]
    troubles: list[Trouble]
    newcomers: Mapping[str, Any] | None = None  # as in summary.json
    privacy: Mapping[str, Any] | None = None  # as in summary.json
    energy: Mapping[str, Any] | None = None  # by cause, as in summary.json
    certificate: str = ""  # what its virtual time is worth, in one sentence; empty: nobody compared it with a clock
    beside: Mapping[str, float] = field(default_factory=dict)  # as in summary.json
    metric: Metric = ACCURACY  # what its scores are; they are kept as merits, so that more is always better

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def seed(self) -> int:
        return self.experiment.run.seed

    @property
    def all_joules(self) -> float | None:
        """Work and waiting, awake or asleep; None where waiting is not known."""
        if self.idle_joules is None:
            return None
        return self.joules + self.idle_joules + ((self.energy or {}).get("sleep") or 0.0)

    @property
    def idle_share(self) -> float | None:
        """The share of all energy that did nothing: idle or asleep. Without the split, waiting alone counts."""
        if self.energy is not None:
            return self.energy.get("idle_share")
        total = self.all_joules
        return self.idle_joules / total if total and self.idle_joules is not None else None

    @property
    def finished(self) -> bool:
        return self.state == "finished"

    @property
    def last(self) -> Point | None:
        """The last evaluation within the budget, if the run has one."""
        return self.points[self.within - 1] if self.points else None


def run_figures(run: Run, until: float | None = None) -> RunFigures:
    """Read a run, up to a moment of its virtual time or all of it.

    Figures that a run does not have yet are empty. A damaged file raises BadInput.
    """
    folder = run.folder
    path = folder / "experiment.toml"
    if not path.exists():
        raise BadInput(Code.RUN_ABSENT, f"run: {str(folder)!r} is not a run: it has no experiment.toml.")
    experiment = run.experiment
    tables = _tables(folder / "run.db", until, experiment.budget.limits)
    steps = tables.get("steps", [])
    at = steps[0] if steps else {}
    summary = _summary(folder)
    valid = bool(at) and summary.get("steps") == at["step"]
    if not valid:
        summary = {}
    ended = str(summary.get("ended", ""))
    state = "unfinished" if not valid or ended == "paused" else "interrupted" if ended == "interrupted" else "finished"
    points, metric = tables.get("points", []), _metric(tables.get("task", []))
    judged = tables["judged"][0]["step"] if points else 0
    times = Counter[str]()
    for row in tables.get("troubles", []):
        times[row["outcome"]] += row["times"]
    return RunFigures(
        folder=folder,
        experiment=experiment,
        toml=path.read_text(encoding="utf-8"),
        state=state,
        ended=ended if valid else _why_unfinished(at, bool(tables.get("later"))),
        step=at.get("step", 0),
        judged=judged,
        rounds=at.get("round", 0),
        virtual=at.get("virtual", 0.0),
        bytes_up=at.get("bytes_up", 0),
        bytes_down=at.get("bytes_down", 0),
        macs=at.get("macs", 0.0),
        joules=at.get("joules", 0.0),
        passes=at.get("passes"),
        within=sum(row["step"] <= judged for row in points),
        idle_joules=summary.get("idle_joules"),
        clock=run.clock,
        metered=experiment.run.engine not in ENGINES and summary.get("energy_joules", 0.0) is not None,
        refused=times["refused"] + times["repeat"],
        lost=times["lost"],
        unfit=frozenset(row["client"] for row in tables.get("unfit", [])),
        fleet=summary.get("clients"),
        model=summary.get("model"),
        versions=dict(summary.get("versions", {})),
        points=[_point(row, metric) for row in points],
        clients=[_client(row, metric) for row in tables.get("clients", [])],
        spent=[Spent(**row) for row in tables.get("spent", [])],
        troubles=[Trouble(**row) for row in tables.get("troubles", [])],
        newcomers=summary.get("newcomers"),
        privacy=summary.get("privacy"),
        energy=summary.get("energy"),
        certificate=next((note for note in summary.get("notes", ()) if note.endswith(NOT_HARDWARE)), ""),
        beside=summary.get("beside") or {},
        metric=metric,
    )


def _point(row: Mapping[str, Any], metric: Metric) -> Point:
    scores = {name: metric.merit(row[name]) for name in ("mean", "worst_tenth", "worst")}
    return Point(**{name: value for name, value in row.items() if name != "step"} | scores)


def _client(row: Mapping[str, Any], metric: Metric) -> Client:
    found = row["accuracy"]
    return Client(**{**row, "accuracy": None if found is None else metric.merit(found)})


def _metric(rows: Sequence[Mapping[str, Any]]) -> Metric:
    """The metric that ranks the models; a run that ranks by accuracy names none."""
    told = {row["name"]: row["value"] for row in rows}
    try:
        return METRICS[json.loads(told["metric"])] if "metric" in told else ACCURACY
    except (KeyError, ValueError):
        raise BadInput(Code.RUN_DAMAGED, f"run: unknown metric {told['metric']}.") from None


def _why_unfinished(at: dict[str, Any], later: bool) -> str:
    if later:
        return "as of that moment"
    done = f"after round {at['round']}" if at else "before its first round"
    return f"no summary {done}: still running, or killed"


def _summary(folder: Path) -> dict[str, Any]:
    path = folder / "summary.json"
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise BadInput(Code.RUN_DAMAGED, f"run: {str(path)!r} is not valid JSON ({error}).") from None
    return value if isinstance(value, dict) else {}


# The last evaluation at or before the limits of the budget, or of all. The first one always counts.
_JUDGED = """
    SELECT coalesce(max(CASE WHEN virtual <= :virtual_seconds AND joules <= :joules AND bytes_up + bytes_down <= :bytes
        AND coalesce(passes, 0) <= :local_passes AND round <= :rounds THEN step END), min(step)) AS step
    FROM evaluations JOIN steps USING (step) WHERE step <= :last AND mean IS NOT NULL"""
# SQLite computes the sums, because an asynchronous run may have a million tasks. `:last` is the last step that counts.
_QUERIES = {
    "steps": "SELECT * FROM steps WHERE step = :last",
    "later": "SELECT 1 FROM steps WHERE step > :last LIMIT 1",
    "points": """
        SELECT step, s.round, s.virtual, s.bytes_up + s.bytes_down AS bytes, s.joules, s.passes, e.mean, e.worst_tenth,
               e.worst
        FROM evaluations e JOIN steps s USING (step) WHERE e.mean IS NOT NULL AND step <= :last ORDER BY step""",
    "judged": _JUDGED,
    "clients": f"""
        SELECT c.client AS name, coalesce(c.device, '') AS device, coalesce(c.link, '') AS link,
               coalesce(c.train, 0) AS train, coalesce(c.test, 0) AS test, a.accuracy
        FROM clients c LEFT JOIN accuracies a ON a.client = c.client
             AND a.step = ({_JUDGED}) ORDER BY c.client""",
    "spent": """
        SELECT c.device, sum(outcome NOT IN ('post', 'repeat')) AS tasks,
               coalesce(sum((arrived - sent) * (outcome IN ('accepted', 'refused', 'late'))), 0) AS seconds,
               sum(outcome IN ('accepted', 'refused', 'late')) AS carried, sum(bytes_up) AS bytes_up,
               sum(bytes_down) AS bytes_down, sum(macs) AS macs, sum(joules) AS joules,
               coalesce(max(memory), 0) AS memory
        FROM tasks t LEFT JOIN clients c USING (client) WHERE step <= :last GROUP BY c.device ORDER BY c.device""",
    "unfit": "SELECT DISTINCT client FROM events WHERE kind = 'does-not-fit' AND step <= :last",
    "troubles": """
        SELECT outcome, reason, count(*) AS times, min(client) AS example
        FROM (SELECT client, reason, CASE WHEN (client, reason) IN (SELECT client, detail FROM events
                  WHERE kind = 'does-not-fit') THEN 'unfit' ELSE outcome END AS outcome
              FROM tasks WHERE outcome NOT IN ('accepted', 'post') AND step <= :last)
        GROUP BY 1, 2 ORDER BY times DESC, outcome, reason""",
}


def _tables(path: Path, until: float | None, limits: Mapping[str, float]) -> dict[str, list[dict[str, Any]]]:
    if not path.exists():
        return {}
    with reading(path) as db:
        db.row_factory = sqlite3.Row
        db.execute("BEGIN")  # all queries see one state of a run that goes on
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'events'").fetchone():
            return {}  # killed while the database was being created
        given: dict[str, float] = {"last": last_step(db, until)}
        given |= {kind: limits.get(kind, math.inf) * (1 + 1e-9) for kind in KINDS}
        counted = "passes" in {row[1] for row in db.execute("PRAGMA table_info(steps)")}
        found = {}
        for name, sql in _QUERIES.items():
            sql = sql if counted else sql.replace("s.passes", "NULL AS passes").replace("coalesce(passes, 0)", "0")
            found[name] = [dict(row) for row in db.execute(sql, given)]
        if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'task'").fetchone():
            found["task"] = [dict(row) for row in db.execute("SELECT name, value FROM task")]
        return found


def last_step(db: sqlite3.Connection, until: float | None) -> int:
    """The last step of a run, or the last one up to a moment of virtual time; 0 before the first."""
    found = db.execute("SELECT max(step) FROM steps WHERE virtual <= ?", (math.inf if until is None else until,))
    return int(found.fetchone()[0] or 0)
