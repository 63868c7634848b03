"""The session of a run on real machines: what the driver drives, built from what the clients say of themselves.

The server never holds a client's samples or its private state. A personal model is evaluated on its client's machine
and kept there. For that the server sends what the method declares visible to that client, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from potluck import devices, files
from potluck.deploy.state_fields import personal_without_client, visible
from potluck.engines.flower.protocol import Envelope
from potluck.engines.flower.server.fleet import FlowerFleet
from potluck.engines.flower.server.members import HEAVIEST, Members
from potluck.engines.flower.server.words import Scored
from potluck.fleet import ClientId, Params
from potluck.methods import Method
from potluck.models import Model
from potluck.runs import infer
from potluck.runs.energy import Query
from potluck.runs.engines import ENGINES
from potluck.runs.evaluation import Evaluation, Scores
from potluck.runs.experiment import Experiment
from potluck.runs.model_files import about_of, file_name, save
from potluck.runs.pairing import AP
from potluck.runs.protection import Protection
from potluck.runs.session import ClientRow
from potluck.wire.codec import encode

DOUBT = 0.1  # the share of the clients whose scores no stop of the run depends on
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
    protection: Protection | None = None
    notes: Sequence[str] = ()
    differs: str = "real clients: times are wall times, memory is what each machine says, and every step is saved."
    clock: str = "wall"
    fingerprint: str = ""  # the samples are on other machines
    checkpoint_seconds: float = 0.0  # save every step: what a real client did must not be asked for again

    def new_notes(self) -> list[str]:
        return []

    def client_rows(self) -> Iterator[ClientRow]:
        for name, member in self.members.by_name.items():
            profile, sizes = member.profile, member.sizes
            yield name, profile.device, profile.link, profile.kind, profile.partner, sizes.train, sizes.test

    def evaluate(self, state: Any) -> Evaluation | None:
        good = self._ask_all(state, keep=False)
        good = {client: one for client, one in good.items() if one.right is not None and self._tests(client)}
        if not good:
            return None
        samples = np.array([self._tests(client) for client in good])
        right, loss = (np.array([float(getattr(one, what)) for one in good.values()]) for what in ("right", "loss"))
        shared = [one.shared for one in good.values()]
        # Rows on a client's own word weigh at most ten times the median client's.
        weight = np.minimum(samples, HEAVIEST * np.sort(samples)[(len(samples) - 1) // 2])
        hits = None if None in shared else np.array(shared, dtype=float) / samples
        whole = None if hits is None else float((hits * weight).sum() / weight.sum())
        kind = self.method.headline(self.config)
        untrained = {client: self._personal(state, client)[1] for client in good if not self._trained(client)}
        others = {}
        for other in (infer.RECEIVED, infer.OWN):
            found = [getattr(one, other) for one in good.values()]
            having = sum(one is not None for one in found)
            if other != kind and having:  # a client without one is scored with its headline
                rows = np.array([one or [r, x] for one, r, x in zip(found, right, loss, strict=True)])
                others[other] = Scores(rows[:, 0] / samples, rows[:, 1] / samples, having)
        having = len(good) - (len(untrained) if kind == infer.OWN else 0)
        headline = right / samples, loss / samples
        doubt = DOUBT if len(good) > 2 else 0.0
        return Evaluation(list(good), *headline, samples, whole, None, kind, others, untrained, having, doubt)

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
        kept = {client: answers[client].kept if client in answers else None for client in self._evaluated}
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

    def costs(self, rows: Query, joules: float) -> dict[str, Any]:
        """Energy is known where the power of every device is. A stack is always one client."""
        simulated = self.experiment.run.engine in ENGINES  # the seconds are those of this machine
        known = not simulated and all(profile.device in devices.catalogue() for profile in self.members.values())
        return {"energy_joules": joules if known else None, "idle_joules": None, "energy": None, "mean_stack": 1.0}

    def close(self) -> None: ...

    @property
    def _evaluated(self) -> list[ClientId]:
        """All clients with test rows."""
        return [name for name, profile in self.members.items() if profile.kind != AP and self._tests(name)]

    def _tests(self, client: ClientId) -> int:
        return self.members.by_name[client].sizes.test

    def _ask_all(self, state: Any, keep: bool) -> dict[ClientId, Scored]:
        """Let all clients evaluate their models."""
        shared = self.method.shared(state)
        asks = {client: self._ask(state, client, shared, keep) for client in self._evaluated}
        return self.fleet.evaluate(asks, EVALUATION_WAIT)

    def _ask(self, state: Any, client: ClientId, shared: Params | None, keep: bool) -> Envelope:
        weights, fields = None, {}
        if self.private is None or not self._trained(client):  # the model is made from the server's state alone
            weights, _ = self._personal(state, client)
        else:
            weights = personal_without_client(self.method, state, client)
            fields = {} if weights is not None else visible(self.method, state, client)
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
