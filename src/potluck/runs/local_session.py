"""The session of a simulated run: all clients live in this process or in its workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from potluck.data import Federation
from potluck.data.newcomers import Divided
from potluck.engines.execute import Executor
from potluck.engines.local import LocalFleet
from potluck.fleet import ClientId, Data, Params
from potluck.methods import Method
from potluck.models import Model
from potluck.runs import infer, model_files
from potluck.runs.energy import Query, energy_of
from potluck.runs.evaluate import Evaluator
from potluck.runs.evaluation import Evaluation
from potluck.runs.experiment import Experiment
from potluck.runs.protection import Protection
from potluck.runs.session import ClientRow

MOST_PERSONAL = 2000  # personal models written at the end; larger fleets keep theirs in the checkpoint


@dataclass(frozen=True)
class LocalSession:
    """The parts of one simulated run (`runs.build.build` makes it)."""

    experiment: Experiment
    method: Method
    config: Any
    model: Model
    weights: Params
    federation: Federation
    fleet: LocalFleet
    evaluator: Evaluator
    executor: Executor
    divided: Divided | None = None  # who trains, and who are newcomers
    servers: Data | None = None  # the server's rows
    protection: Protection | None = None
    differs: str = ""
    clock: str = "virtual"

    @property
    def fingerprint(self) -> str:
        return self.federation.dataset.fingerprint

    @property
    def notes(self) -> Sequence[str]:
        said = "Accuracies are those of the validation rows; no test row is read (run.evaluate_on = valid)."
        return self.federation.notes if self.evaluator.part == "test" else (*self.federation.notes, said)

    @property
    def checkpoint_seconds(self) -> float:
        return self.experiment.run.checkpoint_seconds

    def new_notes(self) -> list[str]:
        notes, self.executor.notes[:] = list(self.executor.notes), []
        return notes

    def client_rows(self) -> Iterator[ClientRow]:
        roster, federation = self.fleet.clients, self.federation
        for index, name in self._evaluated():
            profile = roster[name]
            sizes = int(federation.sizes[index]), int(federation.counts(self.evaluator.part)[index])
            yield name, profile.device, profile.link, profile.kind, profile.partner, *sizes

    def evaluate(self, state: Any) -> Evaluation:
        kept = self.fleet.kept
        clients = [
            infer.Client(name, self.fleet.mine(index), kept.trained(index), kept.own(index))
            for index, name in self._evaluated()
        ]
        models = infer.models_of(self.method, self.config, state, self.weights, clients)
        with self.executor.sharing():
            return self.evaluator(models, self.method.shared(state), self.fleet.now)

    def save_models(self, folder: Path, state: Any) -> None:
        """Write models/global, models/personal/<client> and models/inputs, the scale of each client's samples.

        A client whose personal model is the shared one has no file of its own.
        """
        target = folder / "models"
        (target / "personal").mkdir(parents=True, exist_ok=True)
        about = model_files.about_of(self.method.answering(self.model), self.federation.dataset)
        shared = self.method.shared(state)
        if shared is not None:
            model_files.save(target / "global.safetensors", shared, about)
        scales: Params = {}
        for index, client in self._evaluated()[:MOST_PERSONAL]:
            scale = self.federation.scale(index)
            if scale is not None:
                scales |= {f"{client}.mean": torch.as_tensor(scale[0]), f"{client}.factor": torch.as_tensor(scale[1])}
            weights = self.personal(state, index, client)
            if shared is None or not _equal(weights, shared):
                model_files.save(target / "personal" / f"{model_files.file_name(client)}.safetensors", weights, about)
        model_files.save(target / "inputs.safetensors", scales, {})

    def costs(self, rows: Query, joules: float) -> dict[str, Any]:
        fleet, executor = self.experiment.fleet, self.executor
        seed = self.experiment.run.seed
        found = energy_of(rows, self.fleet.clients, self.fleet.now, fleet.rest, fleet.windows, fleet.train_when, seed)
        stack = executor.stacked / executor.stacks if executor.stacks else None
        return {
            "energy_joules": joules,
            "idle_joules": found["waiting"],
            "energy": found,
            "mean_stack": stack,
        }

    def close(self) -> None:
        self.fleet.close()
        self.executor.close()

    def _evaluated(self) -> list[tuple[int, ClientId]]:
        """Client index and name of the clients that are evaluated; the rest of a large fleet is not."""
        return list(zip(self.evaluator.places, self.evaluator.clients, strict=True))

    def personal(self, state: Any, index: int, client: ClientId) -> Params:
        """The model that a client uses now."""
        trained = self.fleet.kept.trained(index)
        return infer.model_of(self.method, state, client, self.fleet.mine(index), trained, self.weights)[0]


def _equal(weights: Params, shared: Params) -> bool:
    """Whether two models have the same numbers: after a resume equal models are no longer one object."""
    if weights.keys() != shared.keys():
        return False
    return all(value is shared[name] or torch.equal(value, shared[name]) for name, value in weights.items())
