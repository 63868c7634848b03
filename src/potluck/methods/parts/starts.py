"""Where everybody's weights begin: trained on the server's own rows, or drawn by each client for itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from potluck import keys
from potluck.errors import BadInput, Code
from potluck.fleet import Fleet, Params
from potluck.learn import sgd, training_macs
from potluck.models import Model
from potluck.models.cfc import memory_shapes, remembering

SERVER_SPEED = 5e10  # MACs per second of an ordinary PC, for the time that pre-training takes


class Pretraining(Protocol):
    """The settings it takes."""

    @property
    def pretrain(self) -> int: ...  # epochs
    @property
    def pretrain_lr(self) -> float: ...
    @property
    def pretrain_batch(self) -> int: ...  # 0: as batch
    @property
    def batch(self) -> int: ...
    @property
    def clip(self) -> float: ...
    @property
    def seed(self) -> int: ...


def pretrained(fleet: Fleet, weights: Params, cfg: Pretraining, classes: int = 0) -> Params:
    """The weights after some epochs on the server's own rows; of the first `classes` classes only, where that is not 0.

    Methods that start from the same weights with the same seed get the same out of it.
    """
    home, rows = fleet.home, fleet.home.data
    if not rows.weight.shape[0]:
        raise BadInput(
            Code.METHOD_NEEDS, "method.pretrain: the server has no rows to train on; give it some with server.share."
        )
    if classes:
        rows = replace(rows, weight=rows.weight * (rows.y < classes))
    fleet.spend(cfg.pretrain * len(rows.y) * training_macs(home.model, weights, rows) / SERVER_SPEED)
    return sgd(
        home.model, weights, rows, key=keys.key(cfg.seed, "pretrain"),
        lr=cfg.pretrain_lr, epochs=cfg.pretrain, batch=cfg.pretrain_batch or cfg.batch, clip=cfg.clip,
    )  # fmt: skip


def scattered(model: Model, weights: Params, key: Tensor) -> Params:
    """Weights of one's own for a CFC, drawn as the model's are."""
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
