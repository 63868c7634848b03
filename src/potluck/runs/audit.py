"""Attack a run: canary clients in a private run, and membership inference on the model it ends with.

A canary client answers with a change of the clipping bound's length in a random direction of its own, or with none: a
coin decides. That is the worst case of the zero-out relation that epsilon is about (Andrew et al., "One-shot Empirical
Privacy Estimation for Federated Learning", ICLR 2024). The attacker sees the first and the last model, and scores each
canary by how far the model moved in its direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from potluck import keys
from potluck.errors import BadInput, Code
from potluck.fleet import Arrival, ClientId, FleetEmpty, Message, Params
from potluck.privacy import audit
from potluck.privacy.audit import Guessed, Separated
from potluck.release import Release, release_of, releases_of, vector, with_vector
from potluck.runs.build import build
from potluck.runs.evaluate import stacked
from potluck.runs.experiment import Experiment
from potluck.runs.local_session import LocalSession
from potluck.runs.private_fleet import guarded
from potluck.runs.saveable import first_state

MOST_CLIENTS = 500  # whose rows membership inference looks at


@dataclass(frozen=True)
class Audited:
    """What was claimed, and what the attackers could show."""

    claimed: float | None  # epsilon of the device that was charged most; None without privacy
    canaries: Guessed
    members: Separated


class CanaryFleet:
    """A fleet in which some clients answer with their canary, or with no change at all."""

    def __init__(
        self, fleet: Any, releases: Mapping[type, Release], seed: int, inside: Mapping[ClientId, bool], clip: float
    ):
        self._fleet = fleet
        self._releases = releases
        self._seed = seed
        self._inside = inside
        self._clip = clip

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fleet, name)

    def gather(self, tasks: Mapping[ClientId, Message], until: float | None = None) -> list[Arrival]:
        found = self._fleet.gather(tasks, until)
        return [self._changed(one, tasks[one.client]) if one.client in self._inside else one for one in found]

    def _changed(self, arrival: Arrival, task: Message) -> Arrival:
        release = release_of(self._releases, arrival.update)
        size = len(vector(arrival.update, task, release))
        change = self._clip * direction(self._seed, arrival.client, size) * float(self._inside[arrival.client])
        return replace(arrival, update=with_vector(arrival.update, task, release, change))


def direction(seed: int, client: ClientId, size: int) -> Tensor:
    """The canary of a client: a random direction."""
    drawn = keys.normal(keys.key(seed, "canary", client), (size,))
    unit: Tensor = drawn / torch.linalg.vector_norm(drawn)
    return unit


def audited(experiment: Experiment, share: float = 0.5) -> Audited:
    """Run the experiment with canaries among its clients, in memory, and attack it twice: with canaries and without."""
    canaries, claimed = _canaries(experiment, share)
    return Audited(claimed, canaries, _members(experiment))


def _ended(experiment: Experiment, session: LocalSession, fleet: Any, state: Any) -> tuple[Params, Any]:
    """The shared model after the experiment's rounds, and the fleet that the method had."""
    guarded_fleet = guarded(fleet, session.protection, state)
    program = session.method.server(guarded_fleet, state, session.config)
    try:
        for state in program:
            guarded_fleet.yielded(state)
            if int(getattr(state, "round", 0)) >= (experiment.stop.rounds or 10):
                break
    except FleetEmpty:
        pass  # the budget is spent
    weights = session.method.shared(state)
    if weights is None:
        raise BadInput(Code.PRIVACY, f"method.name: must have a shared model to audit, got {session.method.name}.")
    return weights, guarded_fleet


def _canaries(experiment: Experiment, share: float) -> tuple[Guessed, float | None]:
    session = build(experiment)
    releases = releases_of(session.method.module, session.config)
    if isinstance(releases, str) or any(one.single or one.together for one in releases.values()):
        raise BadInput(Code.PRIVACY, f"method.name: must need only sums of a round, got {session.method.name}.")
    state = first_state(session.method, session.weights, session.config)
    before, seed = session.method.shared(state), experiment.run.seed
    assert before is not None
    names = list(session.fleet.clients)
    draw = keys.rng(seed, "canaries")
    chosen = [names[i] for i in np.sort(draw.permutation(len(names))[: max(3, round(share * len(names)))])]
    inside = dict(zip(chosen, (draw.random(len(chosen)) < 0.5).tolist(), strict=True))
    private = session.protection is not None and session.protection.plan.unit == "client"
    clip = session.protection.plan.clip if private and session.protection is not None else 1.0
    after, fleet = _ended(experiment, session, CanaryFleet(session.fleet, releases, seed, inside, clip), state)
    moved = torch.cat([(after[name] - before[name]).reshape(-1) for name in after if after[name].is_floating_point()])
    scores = np.array([float(moved @ direction(seed, name, len(moved))) for name in chosen])
    found = audit.guess(scores, np.array([inside[name] for name in chosen]), experiment.privacy.delta)
    spent = fleet.record().get("epsilon")
    return found, None if spent is None else float(spent)


def _members(experiment: Experiment) -> Separated:
    """Tell training rows from test rows by their losses under the shared model."""
    session = build(experiment)
    state = first_state(session.method, session.weights, session.config)
    weights, _ = _ended(experiment, session, session.fleet, state)
    federation, losses = session.federation, {}
    for part, sizes in (("train", federation.sizes), ("test", federation.test_sizes)):
        some = [i for i in range(len(federation.names)) if sizes[i] > 0][:MOST_CLIENTS]
        data = stacked(federation, some, part, int(max(sizes[i] for i in some)))  # type: ignore[arg-type]
        with torch.no_grad():
            out = functional_call(session.model.module, weights, (data.x.flatten(0, 1),))
            each = session.model.task.losses(out, data.y.flatten(0, 1))
        losses[part] = each[data.weight.flatten() > 0].numpy()
    return audit.separated(-losses["train"], -losses["test"], experiment.privacy.delta)
