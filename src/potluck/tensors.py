"""Arithmetic on models (dicts of named tensors)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from potluck._merging import summed
from potluck.fleet import Params
from potluck.rows import moved

WIDE = 1 << 13  # elements: above, adding one tensor after another is quicker than stacking copies first


def each(function: Callable[..., Tensor], *models: Params) -> Params:
    """Apply a function tensor by tensor to models of the same names."""
    first, *others = models
    return {name: function(value, *(other[name] for other in others)) for name, value in first.items()}


def zeros_like(model: Params) -> Params:
    return each(torch.zeros_like, model)


def mix(a: Params, b: Params, share: float | Tensor) -> Params:
    """Move a towards b by a share: share 0 is a, share 1 is b."""
    if not isinstance(share, Tensor) and torch._C._functorch.peek_interpreter_stack() is None:
        row = moved(a, b, share, between=True)  # a server mixes in each arrival
        if row is not None:
            return row
    return each(lambda p, q: p + share * (q - p) if p.is_floating_point() else p, a, b)


@lru_cache(maxsize=8)
def _numbers(block: int) -> tuple[Tensor, ...]:
    return torch.arange(block << 10, (block + 1) << 10).unbind(0)


def whole(number: int) -> Tensor:
    """A whole number as a tensor, which nobody may change in place.

    A server that counts sends the next one with each task, so they are made a thousand at a time.
    """
    return _numbers(number >> 10)[number & 1023]


def added(a: Params, b: Params, share: float) -> Params:
    """Return a + share b; what is no floating-point tensor stays that of a."""
    row = moved(a, b, share, between=False)
    return each(lambda p, q: p + share * q if p.is_floating_point() else p, a, b) if row is None else row


def flat(model: Params) -> Tensor:
    """Join all floating-point tensors to one vector, in the order of the model."""
    return torch.cat([value.reshape(-1) for value in model.values() if value.is_floating_point()])


def distance(a: Params, b: Params) -> Tensor:
    """Return the Euclidean distance over all floating-point tensors."""
    length: Tensor = torch.linalg.vector_norm(flat(a) - flat(b))
    return length


def mean(models: Sequence[Params], weights: Iterable[float | Tensor] | None = None) -> Params:
    """Return the weighted mean of models, accumulated in their order; without weights all count the same.

    Integer tensors (counters) have no mean: those of the first model are kept.
    """
    if not models:
        raise ValueError("mean: no models were given")
    count = len(models)
    share = torch.ones(count) if weights is None else one_row(weights).float()
    if len(share) != count:
        raise ValueError(f"mean: {len(share)} weights for {count} models")
    total = share.sum()
    if not bool(total > 0):
        raise ValueError("mean: the weights must be positive in total")
    share = share / total
    first, done = models[0], summed(models, share)
    left = [name for name, value in first.items() if name not in done and value.is_floating_point()]
    rest = list(models) if left else []  # kernels cannot add these
    done |= {name: _combine([model[name] for model in rest], share) for name in left}
    return {name: done.get(name, value) for name, value in first.items()}


def one_row(weights: Iterable[float | Tensor]) -> Tensor:
    """Numbers, one of each client, as one tensor."""
    return weights if isinstance(weights, Tensor) else torch.stack([torch.as_tensor(w) for w in weights])


def _combine(values: Sequence[Tensor], share: Tensor) -> Tensor:
    """Sum in the order of `values`, by a rule that depends on the shape only.

    Updates may be rows of one stack, or copies from a checkpoint: a resumed run must end with the same bits.
    """
    first = values[0]
    if first.numel() <= WIDE:
        rows = torch.stack(list(values)).reshape(len(values), -1)
        return (share.to(rows.dtype) @ rows).reshape(first.shape)
    parts: list[float] = share.tolist()
    out: Tensor = first * parts[0]
    for value, part in zip(values[1:], parts[1:], strict=True):
        out.add_(value, alpha=part)
    return out
