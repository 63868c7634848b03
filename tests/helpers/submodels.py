"""Models, kernels and server rows for the tests of methods with sub-models."""

from __future__ import annotations

from typing import Any

import torch

from potluck import keys
from potluck.fleet import Data, Params
from potluck.methods.parts.submodels import kernels
from potluck.methods.parts.submodels.widths import plan_of
from potluck.models import Model, build

RATIOS = (1.0, 0.75, 0.5625, 0.5, 0.25, 0.05)
MODELS = {
    "mnist": ("cnn", (1, 28, 28), {}),
    "depth": ("cnn", (1, 12, 12), {"norm": "batch", "hidden": [12]}),
    "resnet": ("resnet18", (3, 8, 8), {"width": 8}),
    "convnet": ("convnet", (64, 6), {"width": 8, "features": 12}),
    "mlp": ("mlp", (6,), {"hidden": [16, 8]}),
}
EXPERIMENT = {
    "data": {"source": "made"},
    "partition": {"kind": "dirichlet", "alpha": 0.5, "clients": 4},
    "server": {"share": 0.2},
    "model": {"name": "mlp", "hidden": [8]},
    "fleet": {"devices": "fedconv"},
    "stop": {"rounds": 2},
}


def model_of(name: str) -> Model:
    kind, shape, settings = MODELS[name]
    return build(kind, shape, 10, settings)


def kernels_of(model: Model, weights: Params, ratio: float, **settings: Any) -> Params:
    names = [name for name in weights if name in model.trainable]
    return kernels.made(weights, names, plan_of(model), ratio, keys.key(3), **settings)


def rows_of(model: Model, count: int = 30) -> Data:
    y = torch.arange(count) % model.classes
    return Data(
        keys.normal(keys.key(1), (count, *model.shape)) + y.reshape(-1, *(1,) * len(model.shape)), y, torch.ones(count)
    )
