"""The workloads W0 to W4: models, made data, and the number of operations a round takes.

W0 tiny dense, W1 a fleet of 120 wearables, W2 images, W3 a small continuous-time net over 125 steps (W3g: a GRU, W3f:
with FedCFC's terms), W4 W1's clients by the ten thousand.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from potluck import compiled, devices, keys
from potluck.compiled.pages import room
from potluck.data.federation import Numbered
from potluck.engines.execute import Executor
from potluck.engines.local import LocalFleet, Roster
from potluck.engines.local.conditions import Conditions
from potluck.engines.local.kept import Kept
from potluck.engines.local.store import Store
from potluck.engines.local.workers import ProcessWorkers
from potluck.engines.price import Prices
from potluck.fleet import Data, Local
from potluck.learn import Recipe
from potluck.methods import fedavg, fedcfc
from potluck.models import Model, build
from potluck.wire.classes import classes_of


@dataclass(frozen=True)
class Workload:
    name: str
    title: str
    model: str
    settings: dict[str, object]
    shape: tuple[int, ...]
    classes: int
    clients: int
    cohort: int
    samples: int
    batch: int
    epochs: int
    lr: float = 0.01
    method: str = "fedavg"

    @property
    def steps(self) -> int:
        return self.epochs * -(-self.samples // self.batch)


_CFC: dict[str, object] = {"hidden": 16, "backbone": 32, "head": 16, "gate": "gated"}
WORKLOADS = {
    w.name: w
    for w in (
        Workload("W0", "tiny dense 64-64-6", "mlp", {"hidden": [64]}, (64,), 6, 100, 100, 64, 16, 1),
        Workload("W1", "HAR fleet, MLP 900-128-5", "mlp", {"hidden": [128]}, (900,), 5, 120, 120, 60, 20, 2),
        Workload("W2", "image fleet, CNN 28x28", "cnn5", {}, (1, 28, 28), 10, 100, 20, 100, 20, 1),
        Workload("W3", "recurrent, CFC 125 steps", "cfc", _CFC, (125, 6), 6, 12, 12, 40, 1, 1),
        Workload("W3g", "recurrent, GRU 125 steps", "gru", {"hidden": 32}, (125, 6), 6, 12, 12, 40, 1, 1),
        Workload("W3f", "CFC with FedCFC's terms", "cfc", _CFC, (125, 6), 6, 12, 12, 40, 1, 1, method="fedcfc"),
        Workload("W4", "scale, MLP 900-128-5", "mlp", {"hidden": [128]}, (900,), 5, 10_000, 100, 60, 20, 2),
    )
}


class Arrays:
    """Made data: a pool of samples (prototypes plus noise) that every client holds its own rows of."""

    def __init__(self, w: Workload) -> None:
        draw = keys.rng("bench", w.name)
        pool = min(w.clients, 200) * w.samples
        prototypes = draw.normal(0.0, 0.3, (w.classes, *w.shape)).astype(np.float32)
        labels = draw.integers(0, w.classes, pool)
        noise = draw.random((pool, *w.shape), dtype=np.float32) * 2.0 - 1.0
        self.x, self.y = torch.from_numpy(prototypes[labels] + noise), torch.from_numpy(labels)
        self._w, self._pool = w, pool

    def rows(self, i: int) -> torch.Tensor:
        return (torch.arange(self._w.samples) + i * self._w.samples) % self._pool

    def client(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        rows = self.rows(i)
        return self.x[rows], self.y[rows]

    def stacked(self, places: Sequence[int], capacity: int) -> Data:
        first = torch.tensor(places)[:, None] * self._w.samples
        rows = ((first + torch.arange(self._w.samples)) % self._pool).flatten()
        x, y = room((len(rows), *self._w.shape)), self.y[rows].view(len(places), capacity)

        def copy(begin: int, end: int) -> None:
            part = slice(begin * capacity, end * capacity)
            torch.index_select(self.x, 0, rows[part], out=x[part])

        compiled.spread(len(places), copy)
        return Data(x.view(len(places), capacity, *self._w.shape), y, torch.ones(len(places), capacity))


def model_of(w: Workload) -> Model:
    return build(w.model, w.shape, w.classes, w.settings)


def method_of(w: Workload) -> Any:
    return {"fedavg": fedavg, "fedcfc": fedcfc}[w.method]


def classes(w: Workload) -> dict[str, type]:
    return classes_of(method_of(w), w.method)


def executor_of(w: Workload, model: Model, arrays: Arrays, workers: int) -> Executor:
    return Executor(model, method_of(w).PROGRAMS, classes(w), arrays.stacked, workers, clients=w.clients)


def executor_for(name: str) -> tuple[Executor, dict[str, type]]:
    """The executor of a worker process."""
    w = WORKLOADS[name]
    return executor_of(w, model_of(w), Arrays(w), 1), classes(w)


def fleet_of(
    w: Workload,
    model: Model,
    arrays: Arrays,
    workers: int,
    processes: int = 0,
    available: devices.Availability | None = None,
    at_once: int = 0,
) -> LocalFleet:
    """The local engine over these clients, all on one ordinary device; `available` says when they can be reached."""
    device = next(device for device in devices.catalogue().values() if device.kind == "pc")
    names = Numbered(w.clients)
    roster = Roster(
        names,
        np.full(w.clients, w.samples),
        [(device, replace(devices.link("ethernet"), availability=available))],
        np.zeros(w.clients, dtype=np.int64),
    )
    one = arrays.stacked([0], w.samples)
    home = Local(model, Data(one.x[0, :0], one.y[0, :0], one.weight[0, :0]), None, keys.key(0))
    executor = executor_of(w, model, arrays, workers)
    if processes:
        here = str(Path(__file__).parent)
        os.environ["PYTHONPATH"] = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
        executor.workers = ProcessWorkers("workloads:executor_for", w.name, classes(w), processes)
    kept = Kept(Store(classes(w)), Store(classes(w)), ())
    private = fedcfc.private(model.init(0), config_of(w)) if w.method == "fedcfc" else None
    conditions = Conditions(at_once=at_once)
    return LocalFleet(roster, executor, home, kept, Prices(method_of(w).PROGRAMS), private, conditions)


def config_of(w: Workload) -> Any:
    recipe = Recipe(epochs=w.epochs, batch=w.batch, lr=w.lr, clip=5.0 if w.method == "fedcfc" else 0.0)
    cohort = 0 if w.cohort == w.clients else w.cohort
    return method_of(w).Config(recipe=recipe, cohort=cohort)
