"""Where the weights start: trained on the server rows, drawn by each client for itself, or drawn with other seeds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from potluck import keys
from potluck.errors import BadInput, Code
from potluck.fleet import Fleet, Params
from potluck.learn import Recipe, fit, training_macs
from potluck.methods.parts import checks
from potluck.models import Model
from potluck.models.cfc import memory_shapes, remembering

PRETRAINS = "pretrain.epochs"  # the setting of methods that have a `Pretrain`
SERVER_SPEED = 5e10  # MACs per second of an ordinary PC, for the time that pre-training takes


@dataclass(frozen=True)
class Pretrain:
    """Training on the server rows before the first round."""

    epochs: int = 0  # epochs on the server rows; 0: none
    lr: float = 0.1  # learning rate
    batch: int = 0  # 0: as recipe.batch

    def __post_init__(self) -> None:
        for name in ("epochs", "batch"):
            checks.at_least(self, name, 0)
        checks.above(self, "lr", 0.0)


def pretrained(
    fleet: Fleet, weights: Params, pretrain: Pretrain, recipe: Recipe, seed: int, classes: int = 0
) -> Params:
    """The weights after some epochs on the server rows; `classes` above 0 takes samples of the first classes only.

    Methods that start from the same weights with the same seed get the same result.
    """
    home, rows = fleet.home, fleet.home.data
    if not rows.weight.shape[0]:
        raise BadInput(Code.METHOD_NEEDS, "method.pretrain: needs server rows to train on. Set server.share above 0.")
    if classes:
        rows = replace(rows, weight=rows.weight * (rows.y < classes))
    fleet.spend(pretrain.epochs * len(rows.y) * training_macs(home.model, weights, rows) / SERVER_SPEED)
    first = Recipe(pretrain.epochs, pretrain.batch or recipe.batch, pretrain.lr, clip=recipe.clip)
    return fit(home.model, weights, rows, first, key=keys.key(seed, "pretrain"))


def other_start(model: Model, seed: int, number: int) -> Params:
    """The first weights of a further model beside the run's own start."""
    return model.init(1_000_003 * (seed + 1) + number)


def scattered(model: Model, weights: Params, key: Tensor) -> Params:
    """Weights of a CFC that a client draws for itself, by the same rule as the model."""
    out = {}
    for name, w in weights.items():
        bound = (6.0 / sum(w.shape)) ** 0.5 if w.dim() == 2 else 0.0
        out[name] = bound * (2.0 * keys.uniform(keys.fold(key, "scatter", name), w.shape) - 1.0)
    if model.settings["init"] == "xavier":
        return out
    q, o = (_orthogonal(keys.fold(key, "memory", i), shape) for i, shape in enumerate(memory_shapes(weights)))
    return remembering(out, model.settings, q, o)


def _orthogonal(key: Tensor, shape: tuple[int, int]) -> Tensor:
    tall = keys.normal(key, (max(shape), min(shape)))
    q: Tensor = torch.linalg.qr(tall).Q
    return q if shape[0] >= shape[1] else q.T
