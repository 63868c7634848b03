"""Small fleets of pairs and single tasks of theirs, for the tests of Centaur and its baselines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from helpers.fleets import fleet_of, made
from potluck import devices, keys, methods
from potluck.fleet import Data, Done, Local
from potluck.methods import centaur
from potluck.methods.centaur import Collect, Config
from potluck.methods.parts.centaur.handover import Handover
from potluck.methods.parts.centaur.samples import Counts
from potluck.models import build
from potluck.settings import moved_to

CENTAUR, AP, UCD = (methods.load(name) for name in ("centaur", "ap", "ucd"))
SIZES = (12, 20, 15, 9)
MLP = build("mlp", (4,), 3, {"hidden": [8]})
UCD_LINK, AP_LINK = devices.link("centaur-ucd"), devices.link("centaur-ap")


def pairs(method: methods.Method, config: Any, sizes: tuple[int, ...] = SIZES, **options: Any) -> tuple[Any, Any]:
    """Devices c0 to c(n-1), and behind them their access points; one after another, which is quicker for so few."""
    return fleet_of(method, config, made(sizes), **{"model": MLP, "stacking": "never", "pairs": True, **options})


def settings(method: methods.Method = CENTAUR, **values: Any) -> Any:
    """A Config from the last parts of its settings' names, or their old names: `batch` is recipe.batch.

    Devices are always connected by default: then all of them have the same task, and it is counted once.
    """
    short = {"cohort": 0, "batch": 10, "lr": 0.1, "connected": 1.0, **values}
    return method.configure({moved_to(method.config, name) or name: value for name, value in short.items()})


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def windows(n: int = 20) -> tuple[Any, Local]:
    """A small ConvNet with batch norm, and a client with n windows of 24 steps and 5 sensors."""
    model = build("convnet", (24, 5), 3, {"width": 4, "features": 6, "norm": "batch", "form": "short"})
    data = Data(keys.normal(keys.key("x"), (n, 24, 5)), torch.arange(n) % 3, torch.ones(n))
    return model, Local(model, data, None, keys.key(7))


def device_task(model: Any, cfg: Config, units: int = 1, storage: float = 1e6, **conditions: Any) -> Collect:
    """The task of a device in the first pair of rounds; its access point is there by default."""
    state, names = centaur.start(model.init(3), cfg), model.split().classifier
    conditions = {"pair": 0, "here": True, "again": False, **conditions}
    return Collect.of(state, cfg, names, units, Handover.of(storage=storage, **conditions))


def epochs_of(task: Collect) -> int:
    return task.recipe.epochs + task.offline


def lasting(task: Collect, epochs: int) -> Collect:
    """The same task with so many epochs; 0 only selects."""
    return replace(task, offline=epochs - task.recipe.epochs)


def counts_of(done: Done) -> Counts:
    """What a device counted in its round."""
    return Counts.unpacked(done.update.counts)


def rows_of(data: Data) -> set[tuple[float, ...]]:
    return {tuple(row.flatten().tolist()) for row in data.x[data.weight > 0]}
