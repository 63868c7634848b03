"""Arithmetic on models: named tensors as one value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from potluck.fleet import Params


def each(function: Callable[..., Tensor], *models: Params) -> Params:
    """Apply a function tensor by tensor to models of the same names."""
    first, *others = models
    return {name: function(value, *(other[name] for other in others)) for name, value in first.items()}


def zeros_like(model: Params) -> Params:
    return each(torch.zeros_like, model)


def mix(a: Params, b: Params, share: float | Tensor) -> Params:
    """a moved towards b by the share: share 0 is a, share 1 is b."""
    return each(lambda p, q: p + share * (q - p) if p.is_floating_point() else p, a, b)


def flat(model: Params) -> Tensor:
    """All floating-point tensors as one vector, in the order of their names in the model."""
    return torch.cat([value.reshape(-1) for value in model.values() if value.is_floating_point()])


def distance(a: Params, b: Params) -> Tensor:
    """Euclidean distance over all floating-point tensors."""
    return torch.linalg.vector_norm(flat(a) - flat(b))


def mean(models: Sequence[Params], weights: Iterable[float | Tensor] | None = None) -> Params:
    """The weighted mean of models, accumulated in the order given; equal weights where none are named.

    Integer tensors (counters) cannot be averaged: the first model's are kept.
    """
    if not models:
        raise ValueError("mean: no models were given")
    count = len(models)
    share = torch.ones(count) if weights is None else torch.stack([torch.as_tensor(w) for w in weights]).float()
    total = share.sum()
    if not bool(total > 0):
        raise ValueError("mean: the weights must be positive in total")
    share = share / total
    return {name: _combine([model[name] for model in models], share) for name in models[0]}


def _combine(values: Sequence[Tensor], share: Tensor) -> Tensor:
    first = values[0]
    if not first.is_floating_point():
        return first
    out: Tensor | None = None
    for rows, places in _stacks(values):
        part = share[places].to(rows.dtype) @ rows.reshape(len(places), -1)
        out = part if out is None else out + part
    assert out is not None
    return out.reshape(first.shape)


def _stacks(values: Sequence[Tensor]) -> list[tuple[Tensor, list[int]]]:
    """The values as few stacked tensors as possible, each with the places its rows have in the list.

    Updates of clients trained together are rows of one tensor; when all its rows are wanted it is used as it stands.
    """
    together: dict[int, dict[int, int]] = {}  # stack -> row in it -> place in the list
    bases: dict[int, Tensor] = {}
    alone: list[int] = []
    for place, value in enumerate(values):
        base = value._base
        if base is None or base.dim() != value.dim() + 1 or not base.is_contiguous() or not value.is_contiguous():
            alone.append(place)
            continue
        bases[id(base)] = base
        row = (value.storage_offset() - base.storage_offset()) // max(1, base.stride(0))
        together.setdefault(id(base), {})[row] = place
    stacks: list[tuple[Tensor, list[int]]] = []
    for name, rows in together.items():
        base, order = bases[name], sorted(rows)
        whole = len(order) == base.shape[0]
        stacks.append((base if whole else base[order], [rows[row] for row in order]))
    if alone:
        stacks.append((torch.stack([values[place] for place in alone]), alone))
    return stacks
