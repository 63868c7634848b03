"""What makes whole models of free numbers, and what a step of tuning is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from potluck.fleet import Params
from potluck.methods.parts.submodels import kernels
from potluck.methods.parts.submodels.kernels import PLAIN, Activation, Lattice, Under
from potluck.methods.parts.submodels.widths import Plan
from potluck.models import Model

Make = Callable[[Params, Any], Params]  # (free numbers of one member, what is fixed for it) -> a whole model
Array = Any  # a float32 array of one axis


@dataclass(frozen=True)
class Compression:
    """Equation (1): a sub-model of its kernels."""

    weights: Params
    plan: Plan
    width: float
    activation: Activation = "identity"
    lattice: Lattice = PLAIN

    def __call__(self, free: Params, _: Any = None) -> Params:
        return kernels.compress(self.weights, free, self.plan, self.width, self.activation, self.lattice)


@dataclass(frozen=True)
class Dilation:
    """Equation (3): a model at full width of a sub-model and kernels."""

    weights: Params
    fill: Under = "global"
    lattice: Lattice = PLAIN

    def __call__(self, free: Params, sub: Params) -> Params:
        return kernels.dilate(sub, free, self.weights, self.fill, self.lattice)


class Step(NamedTuple):
    """Of every member on its own fixed, or of the only one on the fixed `at`."""

    rows: Tensor  # (B,) which rows
    counts: Tensor  # (B,) 0 for padding
    at: slice
    rate: float
    key: Callable[[], Tensor]


def buffers_of(model: Model, weights: Params) -> Params:
    return {name: value for name, value in weights.items() if name not in model.trainable}


def put(old: Tensor, where: slice, new: Tensor) -> Tensor:
    if new.shape == old.shape:
        return new
    out = old.clone()
    out[where] = new
    return out
