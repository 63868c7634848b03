"""Models as vectors: the trained weights of a model in one row, its buffers in another, and back."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from potluck.fleet import Params
from potluck.models import Model


def trained(model: Model, weights: Params) -> list[str]:
    """The names of the tensors that training moves."""
    return [name for name in weights if name in model.trainable]


def buffers(model: Model, weights: Params) -> list[str]:
    """The names of the floating-point tensors that no gradient moves. Integer counters stay on the client."""
    return [n for n, value in weights.items() if n not in model.trainable and value.is_floating_point()]


def flat(weights: Params, names: Sequence[str]) -> Tensor:
    """The named tensors as one row."""
    return torch.cat([weights[name].reshape(-1) for name in names]) if names else torch.zeros(0)


def parted(rows: Tensor, names: Sequence[str], like: Params) -> Params:
    """Cut the last axis into named tensors of the shapes of `like`."""
    parts = torch.split(rows, [like[name].numel() for name in names], -1)
    return {name: part.reshape(*rows.shape[:-1], *like[name].shape) for name, part in zip(names, parts, strict=True)}


def stacked(model: Model, like: Params, weights: Tensor, rest: Tensor) -> Params:
    """Rows of trained weights and of buffers as one stack of models, by name."""
    found = parted(weights, trained(model, like), like) | parted(rest, buffers(model, like), like)
    return {name: found[name] if name in found else v.expand(len(weights), *v.shape) for name, v in like.items()}
