"""The session of a run on real machines: what the driver drives, built from what the clients say of themselves.

The server never holds a client's samples or its private state. A personal model is evaluated on its client's machine
and kept there. For that the server sends the fields of its own state that the model is made from, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from potluck import devices, files
from potluck.deploy.state_fields import fields_read, personal_without_client
from potluck.engines.flower.protocol import Envelope
from potluck.engines.flower.server.fleet import FlowerFleet
from potluck.engines.flower.server.members import Members
from potluck.fleet import ClientId, Params
from potluck.methods import Method
from potluck.models import Model
from potluck.runs import infer
from potluck.runs.engines import ENGINES
from potluck.runs.evaluate import Evaluation, Scores
from potluck.runs.experiment import Experiment
from potluck.runs.model_files import about_of, file_name, save
from potluck.runs.pairing import AP
from potluck.runs.session import ClientRow
from potluck.wire.codec import encode

EVALUATION_WAIT = 600.0  # seconds that clients have to evaluate their models; a client that leaves is not waited for


@dataclass
class FlowerSession:
    """Implements `potluck.runs.session.Session`."""

    experiment: Experiment
    method: Method
    config: Any
    model: Model
    weights: Params
    fleet: FlowerFleet
    members: Members
    private: Any
    notes: Sequence[str] = ()
    differs: str = "real clients: times are wall times, memory is what each machine says, and every step is saved."
    clock: str = "wall"
    checkpoint_seconds: float = 0.0  # save every step: what a real client did must not be asked for again
    _fields: set[str] = field(default_factory=set)  # fields of the state that personal models are made from

    def new_notes(self) -> list[str]:
        return []

    def client_rows(self) -> Iterator[ClientRow]:
        for name, member in self.members.by_name.items():
            profile, sizes = member.profile, member.sizes
            yield name, profile.device, profile.link, profile.kind, profile.partner, sizes.train, sizes.test

    def evaluate(self, state: Any) -> Evaluation | None:
        answers = self._ask_all(state, keep=False)
        good = {client: head for client, head in answers.items() if _plausible(head, self._tests(client))}
        if not good:
            return None
        samples = np.array([self._tests(client) for client in good])
        right, loss = (np.array([float(good[client][what]) for client in good]) for what in ("right", "loss"))
        shared = [good[client]["shared"] for client in good]
        whole = None if any(one is None for one in shared) else float(np.sum(shared) / samples.sum())
        kind = self.method.headline(self.config)
        untrained = {client: self._personal(state, client)[1] for client in good if not self._trained(client)}
        others = {}
        for other in (infer.RECEIVED, infer.OWN):
            found = [good[client].get(other) for client in good]
            having = sum(one is not None for one in found)
            if other != kind and having:  # a client without one is scored with its headline
                rows = np.array([one or [r, x] for one, r, x in zip(found, right, loss, strict=True)])
                others[other] = Scores(rows[:, 0] / samples, rows[:, 1] / samples, having)
        having = len(good) - (len(untrained) if kind == infer.OWN else 0)
        headline = right / samples, loss / samples
        return Evaluation(list(good), *headline, samples, whole, None, kind, others, untrained, having)

    def save_models(self, folder: Path, state: Any) -> None:
        """Write the shared model here, and a list of where each client keeps its personal model.

        The models of clients that are offline are written here too, where the server's state is enough to make them.
        `inputs` stays empty: the scale of a client's samples never leaves its machine.
        """
        target = folder / "models"
        target.mkdir(parents=True, exist_ok=True)
        shared, about = self.method.shared(state), about_of(self.method.answering(self.model))
        if shared is not None:
            save(target / "global.safetensors", shared, about)
        save(target / "inputs.safetensors", {}, {})
        answers = self._ask_all(state, keep=True)
        kept = {client: answers[client].get("kept") if client in answers else None for client in self._evaluated}
        for client in [client for client, path in kept.items() if path is None]:
            known = self._trained(client)
            weights = personal_without_client(self.method, state, client) if known else self._personal(state, client)[0]
            if weights is None:
                continue
            del kept[client]
            if shared is None or any(weights[name] is not value for name, value in shared.items()):
                (target / "personal").mkdir(exist_ok=True)
                save(target / "personal" / f"{file_name(client)}.safetensors", weights, about)
        files.write_json(target / "on_clients.json", kept)

    def costs(self, busy: Sequence[tuple[ClientId, float, int]], joules: float) -> dict[str, float | None]:
        """Energy is known where the power of every device is. A stack is always one client."""
        simulated = self.experiment.run.engine in ENGINES  # the seconds are those of this machine
        known = not simulated and all(profile.device in devices.catalogue() for profile in self.members.values())
        return {"energy_joules": joules if known else None, "idle_joules": None, "mean_stack": 1.0}

    def close(self) -> None: ...

    @property
    def _evaluated(self) -> list[ClientId]:
        """All clients with test rows."""
        return [name for name, profile in self.members.items() if profile.kind != AP and self._tests(name)]

    def _tests(self, client: ClientId) -> int:
        return self.members.by_name[client].sizes.test

    def _ask_all(self, state: Any, keep: bool) -> dict[ClientId, dict[str, Any]]:
        """Let all clients evaluate their models. Where a model needs one more field of the state, ask again with it."""
        shared, clients = self.method.shared(state), self._evaluated
        if self.private is not None and clients:
            self._fields |= fields_read(self.method, state, clients[0], self.private)
        answers: dict[ClientId, dict[str, Any]] = {}
        for _ in range(1 + len(vars(state))):
            asks = {client: self._ask(state, client, shared, keep) for client in clients if client not in answers}
            found = self.fleet.evaluate(asks, EVALUATION_WAIT)
            missing = {str(e.head["missing"]) for e in found.values() if "missing" in e.head}
            answers |= {client: e.head for client, e in found.items() if "missing" not in e.head}
            fresh = (missing & set(vars(state))) - self._fields
            if not fresh:
                break
            self._fields |= fresh
        return answers

    def _ask(self, state: Any, client: ClientId, shared: Params | None, keep: bool) -> Envelope:
        weights, fields = None, {}
        if self.private is None or not self._trained(client):  # the model is made from the server's state alone
            weights, _ = self._personal(state, client)
        else:
            fields = {name: getattr(state, name) for name in sorted(self._fields)}
        headline = self.method.headline(self.config) == infer.RECEIVED
        received = None if headline or keep else self.method.received(state, client)
        body = encode({"weights": weights, "state": fields, "shared": shared, "received": received})
        return Envelope({"kind": "evaluate", "keep": keep}, body)

    def _trained(self, client: ClientId) -> bool:
        """Whether a task of the client was ever accepted."""
        return bool(self.members.by_name[client].taken)

    def _personal(self, state: Any, client: ClientId) -> tuple[Params, str]:
        """The model of a client that never trained, or that has no private state; and what it is."""
        return infer.model_of(self.method, state, client, self.private, self._trained(client), self.weights)


def _plausible(head: dict[str, Any], samples: int) -> bool:
    """Whether the figures that a client sent are possible; others are left out."""
    right, loss, shared = head.get("right"), head.get("loss"), head.get("shared")
    pairs = [head[kind] for kind in (infer.RECEIVED, infer.OWN) if head.get(kind) is not None]
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        return False
    numbers = [one for one in (right, loss, shared, *(n for pair in pairs for n in pair)) if one is not None]
    good = all(isinstance(one, int | float) and np.isfinite(one) and one >= 0 for one in numbers)
    if not good or right is None or loss is None or any(None in pair for pair in pairs):
        return False
    return bool(max(right, shared or 0.0, *(pair[0] for pair in pairs)) <= samples)
