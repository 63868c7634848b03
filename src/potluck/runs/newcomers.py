"""Newcomers: what a client gets that took no part in training, with no, one or a few labelled rows of each class.

The server stays as training left it. Without labelled rows a newcomer uses what the server can give a client that never
trained. With some it does the tasks that the method would give it, for some rounds, and keeps its private state.
Whatever else its tasks would change on the server is dropped: newcomers learn nothing from each other.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from potluck.data.newcomers import Divided
from potluck.engines.local.faults import Faults
from potluck.fleet import FleetEmpty
from potluck.runs import infer
from potluck.runs.build import assembled
from potluck.runs.deal import split_seed
from potluck.runs.evaluation import spread
from potluck.runs.local_session import LocalSession
from potluck.runs.rosters import roster_of
from potluck.runs.session import Session

MOST = 3  # rounds of the method after which newcomers that it did not ask are not waited for
ENOUGH = 20  # tasks of each newcomer after which a round is over, also where the method does not count them


def measured(session: Session, state: Any) -> dict[str, Any] | None:
    """The part `newcomers` of summary.json; None without newcomers, and where no test row may be read."""
    if not isinstance(session, LocalSession) or session.evaluator.part != "test":
        return None
    divided, asked = session.divided, session.experiment.newcomers
    if divided is None or not len(divided.new):
        return None
    divided = divided.limited(session.experiment.run.evaluate_clients, session.experiment.run.seed)
    return {
        "clients": len(divided.new),
        "rounds": asked.rounds,
        "rows": {str(count): _figures(session, divided, state, count, asked.rounds) for count in asked.rows},
    }


def _visitors(session: LocalSession, divided: Divided, rows: int) -> LocalSession:
    """A session of the newcomers alone, each with so many labelled rows of every class, and no faults."""
    alone: dict[str, dict[str, Any]] = {
        "faults": dict.fromkeys((*Faults.KINDS, "hostile"), 0.0) | {"late_factor": 1.0},
        "fleet": {
            "boards": {},
            "joins": {},
            "leaves": {},
            "duty": 1.0,
            "rows_per_hour": 0.0,
            "passes": 0.0,
            "train_when": "always",
        },
        "newcomers": {"share": 0.0},
        "run": {"workers": 1},
    }
    experiment, config = session.experiment.with_(**alone), session.config
    if hasattr(config, "cohort"):
        config = dataclasses.replace(config, cohort=0)
    federation = divided.newcomers(rows, split_seed(session.experiment))
    everyone = np.concatenate([divided.new, divided.here])  # the server knows the others, and they are away
    sizes = np.concatenate([federation.sizes, divided.whole.sizes[divided.here]])
    roster = roster_of(experiment, divided.whole, everyone, sizes, gone=len(divided.here))
    counted = bool(np.any(federation.valid_sizes)) == bool(np.any(session.federation.valid_sizes))
    return assembled(
        experiment,
        session.method,
        config,
        session.model,
        session.weights,
        federation,
        session.servers,
        roster,
        prices=session.fleet.prices if counted else None,  # the same tasks on rows of the same kinds
    )


def _figures(session: LocalSession, divided: Divided, state: Any, count: int, rounds: int) -> dict[str, Any]:
    """Accuracies of the newcomers on their test rows, with `count` labelled rows of each class."""
    visit = _visitors(session, divided, count)
    try:
        after = _trained(visit, session.fleet.now, state, rounds) if count else state
        models = _models(visit, state, after)
        found = visit.evaluator(models, None)
    finally:
        visit.close()
    own = found.others.get(infer.OWN)
    return {
        **spread(found.accuracy, found.metric),
        "own": None if own is None else float(own.accuracy.mean()),  # as training on these rows left the model
        "trained": len(found.clients) - len(found.untrained),
        "per_client": dict(zip(found.clients, map(float, found.accuracy), strict=True)),
    }


def _trained(visit: LocalSession, now: float, before: Any, rounds: int) -> Any:
    """Let the newcomers train, each round anew from the server's state; return what the last round would make of it."""
    fleet, method, after = visit.fleet, visit.method, before
    fleet.spend(now)
    fleet.progress = 1.0
    for _ in range(rounds):
        waited, tasks, begun = set(visit.federation.names), 0, getattr(before, "round", 0)
        try:
            for step, after in enumerate(method.server(fleet, before, visit.config), start=1):
                done = fleet.log.drain()[0]
                waited, tasks = waited - {task.client for task in done}, tasks + len(done)
                # A method that counts arrivals by the number of clients has other rounds with newcomers among them.
                begun = min(begun, getattr(after, "round", step))
                passed = getattr(after, "round", step) - begun
                if passed >= (MOST if waited else 1) or tasks >= ENOUGH * len(visit.federation.names):
                    break
        except FleetEmpty:  # no newcomer can train
            break
        while fleet.at_work:  # what an asynchronous method still waits for; the next round begins without it
            fleet.receive()
    return after


def _models(visit: LocalSession, before: Any, after: Any) -> infer.Models:
    kept, method, config = visit.fleet.kept, visit.method, visit.config
    places = list(zip(visit.evaluator.places, visit.evaluator.clients, strict=True))
    picked = [
        infer.model_of_newcomer(
            method, config, before, after, client, visit.fleet.mine(i), kept.trained(i), visit.weights
        )
        for i, client in places
    ]
    headline = [model for model, _ in picked]
    untrained = {client: scored for (_, client), (_, scored) in zip(places, picked, strict=True) if scored}
    own = [kept.own(i) for i, _ in places]
    having = sum(one is not None for one in own)
    others = {infer.OWN: [b if a is None else a for a, b in zip(own, headline, strict=True)]} if having else {}
    return infer.Models(headline, method.headline(config), others, {infer.OWN: having}, untrained)
