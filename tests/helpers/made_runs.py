"""Run folders written by hand, so that every figure of a report can be checked with pencil and paper."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from potluck.runs.experiment import Experiment
from potluck.runs.record import SCHEMA
from potluck.runs.results import Run

Task = tuple[str, str, str]  # client, outcome, reason


def made_run(
    parent: Path,
    method: str = "fedavg",
    seed: int = 0,
    rounds: Sequence[Mapping[str, float]] = ({"a": 0.5, "b": 0.7},),
    *,
    name: str | None = None,
    settings: Mapping[str, Any] | None = None,
    ended: str | None = "done",
    tasks: Sequence[Task] = (),
    unfit: Mapping[str, str] | None = None,
    device: str = "pixel-6",
    summary: Mapping[str, Any] | None = None,
) -> Run:
    """Accuracies of every client by round. A round takes 10 s, 100 B up, 200 B down, 5 J, 1000 MAC and a pass."""
    folder = parent / (name or f"{method}-s{seed}")
    folder.mkdir(parents=True)
    values: dict[str, dict[str, Any]] = {"data": {"source": "made"}, "method": {"name": method}, "run": {"seed": seed}}
    for path, value in (settings or {}).items():
        section, _, field = path.partition(".")
        values.setdefault(section, {})[field] = value
    (folder / "experiment.toml").write_text(Experiment.of(values).toml(), encoding="utf-8")
    clients = list(dict.fromkeys(client for accuracies in rounds for client in accuracies))
    db = sqlite3.connect(folder / "run.db")
    db.executescript(SCHEMA)
    for i, client in enumerate(clients):
        db.execute("INSERT INTO clients VALUES (?, ?, 'wifi', 'client', NULL, ?, ?)", (client, device, 40 + i, 10 + i))
    for step, accuracies in enumerate(rounds, 1):
        found = sorted(accuracies.values())
        mean = sum(found) / len(found)
        spent = (100 * step, 200 * step, 1000.0 * step, 5.0 * step, 1.0 * step)
        db.execute("INSERT INTO steps VALUES (?, ?, ?, 0.1, 0, ?, ?, ?, ?, ?)", (step, step, 10.0 * step, *spent))
        db.execute(
            "INSERT INTO evaluations VALUES (?, ?, 0, ?, ?, ?, 1.0, NULL)", (step, mean, found[0], found[-1], found[0])
        )
        db.executemany(
            "INSERT INTO accuracies VALUES (?, ?, ?, 1.0, 10)", [(step, c, a) for c, a in accuracies.items()]
        )
    for number, (client, outcome, reason) in enumerate(tasks):
        row = (1, number, client, "Train", 0.0, 1.0, 2.0, 4.0, 200, 100, 0, 1000.0, 5000, 5.0, outcome, reason, 1.0)
        row += (3.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0)  # joules of training, of the radio; operations, their bytes; waiting
        db.execute(f"INSERT INTO tasks VALUES ({','.join('?' * len(row))})", row)
    for client, detail in (unfit or {}).items():
        db.execute("INSERT INTO events VALUES (1, 0.0, 'does-not-fit', ?, ?)", (client, detail))
    db.commit()
    db.close()
    if ended is not None:
        told = {
            "steps": len(rounds),
            "ended": ended,
            "clients": len(clients),
            "model": "mlp",
            "idle_joules": 3.0,
            "versions": {"python": "3.11", "torch": "2.13"},
            **(summary or {}),
        }
        (folder / "summary.json").write_text(json.dumps(told), encoding="utf-8")
    return Run(folder)


def flat(*means: float) -> list[dict[str, float]]:
    """One client whose accuracy is the given one in each round."""
    return [{"a": mean} for mean in means]


def with_classes(run: Run, names: Sequence[str], held: Mapping[str, tuple[list[int], list[int], list[int]]]) -> Run:
    """Adds what clients hold for training, are tested on and get right, by class, at the last step."""
    db = sqlite3.connect(run.folder / "run.db")
    (step,) = db.execute("SELECT max(step) FROM steps").fetchone()
    db.executemany("INSERT INTO classes VALUES (?, ?)", enumerate(names))
    for client, (train, test, right) in held.items():
        db.execute("INSERT INTO held VALUES (?, ?)", (client, json.dumps(train)))
        db.execute("INSERT INTO by_class VALUES (?, ?, ?, ?)", (step, client, json.dumps(test), json.dumps(right)))
    db.commit()
    db.close()
    return run


def with_clusters(run: Run, history: Sequence[Mapping[str, int]]) -> Run:
    """Adds the clusters of the steps, from the first on."""
    db = sqlite3.connect(run.folder / "run.db")
    for step, clusters in enumerate(history, 1):
        db.executemany("INSERT INTO clusters VALUES (?, ?, ?)", [(step, c, k) for c, k in clusters.items()])
    db.commit()
    db.close()
    return run
