"""summary.json: the figures of a run, written at its end."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from potluck.metrics import headline
from potluck.runs import needs
from potluck.runs.beside import beside
from potluck.runs.certificate import read_certificate
from potluck.runs.experiment import Experiment
from potluck.runs.record import SPREAD, Recorder
from potluck.runs.resources import resources
from potluck.runs.session import Session
from potluck.tasks import plain


def summarise(
    session: Session, recorder: Recorder, step: int, done: Mapping[str, Any], newcomers: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Collect the figures of a run from its database and its session."""
    experiment, totals = session.experiment, recorder.totals
    latest = recorder.rows("SELECT * FROM evaluations ORDER BY step DESC LIMIT 1")
    _, mean, std, worst, best, tenth, _, whole = latest[0] if latest else (None,) * 8
    evaluated = latest[0][0] if latest else -1
    per_client = dict(
        recorder.rows("SELECT client, accuracy FROM accuracies WHERE step = ? ORDER BY client", evaluated)
    )
    (rounds,) = recorder.rows("SELECT round FROM steps ORDER BY step DESC LIMIT 1")[0]
    (memory,) = recorder.rows("SELECT max(memory) FROM tasks WHERE outcome != 'post'")[0]
    roster = session.fleet.clients
    costs = session.costs(recorder.rows, totals["joules"])
    task = told(session)
    metric = headline({"task": task} if task else {})
    return {
        "method": str(experiment.method["name"]),
        "data": experiment.data.source,
        "model": session.model.name,
        "parameters": sum(session.weights[name].numel() for name in session.model.trainable),
        "clients": len(roster),
        "rounds": rounds,
        "steps": step,
        "seed": experiment.run.seed,
        "ended": done["ended"],
        "progress": done["progress"],  # the share of its limits that the run used
        **({"task": task} if task else {}),
        metric.name: {"mean": mean, "std": std, "worst": worst, "best": best, "worst_tenth": tenth, "global": whole},
        **(_other_metrics(recorder, evaluated) if task else {}),
        "beside": beside(session.method.module, _records(recorder)),
        f"{metric.name}_trained": _trained(recorder, evaluated),
        "infers_with": infers_with(recorder, evaluated),
        "untrained_clients": dict(
            recorder.rows("SELECT client, scored_with FROM untrained WHERE step = ? ORDER BY client", evaluated)
        ),
        "per_client": per_client,
        "newcomers": newcomers,  # clients that took no part in training
        "bytes": {"up": int(totals["bytes_up"]), "down": int(totals["bytes_down"])},
        "engine": engine_of(session),
        "clock": session.clock,  # what virtual_seconds and time_to_accuracy are: virtual or wall time
        "virtual_seconds": session.fleet.now,
        "local_passes": totals["passes"],
        f"time_to_{metric.name}": done["reached"],
        "energy_joules": costs["energy_joules"],
        "idle_joules": costs["idle_joules"],  # waiting awake
        "energy": costs["energy"],  # by cause, over the whole run
        "macs": totals["macs"],
        "peak_training_bytes": memory or 0,
        "refused_updates": done["refused"],
        "refused_messages": _refused_messages(recorder),  # greetings, joins and scores
        "clipped_updates": int(recorder.rows("SELECT count(*) FROM events WHERE kind = 'clipped'")[0][0]),
        "attack": _attack(session, per_client, done["backdoor"]),
        "lost_clients": done["lost"],
        "unfit_clients": session.fleet.unfit,
        "notes": [
            *([session.differs] if session.differs else []),
            *needs.notes(experiment, roster),
            *_certified(experiment),
            *session.notes,
        ],
        "resources": list(resources(experiment, roster)),
        "mean_stack": costs["mean_stack"],
        "wall_seconds": done["wall"],
        "versions": versions(),
    }


def _records(recorder: Recorder) -> dict[str, Any]:
    """The method's own figures as last recorded."""
    rows = recorder.rows("SELECT name, value FROM records WHERE step = (SELECT max(step) FROM records)")
    return {name: json.loads(value) for name, value in rows}


def _attack(session: Session, accuracy: Mapping[str, float], backdoor: float | None) -> dict[str, Any] | None:
    """Who attacked, how the honest clients fare, and how often a backdoor's trigger works; None without attackers."""
    faults = session.experiment.faults
    if not faults.hostile:  # before anybody looks at each of a million clients
        return None
    names = list(session.fleet.clients)
    holders = [name for name in names if session.fleet.clients[name].kind == "client"]
    hostile = faults.attackers(len(holders), session.experiment.run.seed)
    if not hostile.places:
        return None
    attackers = {holders[i] for i in hostile.places}
    honest = [value for client, value in accuracy.items() if client not in attackers]
    return {
        "attack": hostile.attack,
        "scale": hostile.scale,
        "clients": sorted(attackers),
        "honest_accuracy": sum(honest) / len(honest) if honest else None,
        "backdoor": backdoor,
    }


def _certified(experiment: Experiment) -> list[str]:
    """What a certificate says about virtual time, where the fleet names one."""
    path = experiment.fleet.certificate
    return [] if path is None else [read_certificate(Path(path)).sentence]


def _refused_messages(recorder: Recorder) -> int:
    sql = "SELECT count(*) FROM events WHERE kind = 'refused' AND detail NOT LIKE 'task %'"
    return int(recorder.rows(sql)[0][0])


def told(session: Session) -> dict[str, Any] | None:
    """What is learned, for the summary and the database; None for classes that are ranked by accuracy."""
    task = session.model.task
    if task.has_classes and task.headline.name == "accuracy":
        return None
    return {**plain(task), "metric": task.headline.name}


def _other_metrics(recorder: Recorder, step: int) -> dict[str, Any]:
    columns = (*SPREAD, "global")
    rows = recorder.rows(f"SELECT metric, {', '.join(columns)} FROM scores WHERE step = ? ORDER BY metric", step)
    return {row[0]: dict(zip(columns, row[1:], strict=True)) for row in rows}


def engine_of(session: Session) -> str:
    """local, flower-sim, or deployed."""
    named = session.experiment.run.engine
    return "deployed" if named == "local" and session.clock == "wall" else named


def _trained(recorder: Recorder, step: int) -> dict[str, Any] | None:
    """The score of the clients that trained, as the headline has it for all; None before the first evaluation."""
    columns = ", ".join(f"trained_{name}" for name in SPREAD)
    sql = f"SELECT {columns}, trained_clients FROM infers_with WHERE step = ? AND model = 'headline'"
    found = recorder.rows(sql, step)
    return dict(zip((*SPREAD, "clients"), found[0], strict=True)) if found else None


def infers_with(recorder: Recorder, step: int) -> dict[str, Any]:
    """What the headline is, and the figures of the models received and own; None where a method has none."""
    columns = ", ".join((*SPREAD, "trained_mean", "clients"))
    rows = recorder.rows(f"SELECT model, kind, {columns} FROM infers_with WHERE step = ?", step)
    found = {row[0]: dict(zip((*SPREAD, "trained", "clients"), row[2:], strict=True)) for row in rows}
    kind = rows[0][1] if rows else None
    return {"headline": kind, "received": found.get("received"), "own": found.get("own")}


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("potluck", "torch", "numpy"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
