"""Mini-batches of fixed shape: sample indices and 0/1 weights, so that clients with unlike data share one stack."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from potluck import keys
from potluck._whole import whole
from potluck.compiled import stack
from potluck.fleet import Data

PART = 256  # rows in one forward pass over many
_VISITS: ContextVar[list[float] | None] = ContextVar("visits", default=None)


@contextmanager
def visits() -> Iterator[list[float]]:
    """Count the samples that gradient steps visit in this block: the sum of the list, once it is over.

    An engine counts them when it prices a task, for one client alone.
    """
    found: list[float] = []
    token = _VISITS.set(found)
    try:
        yield found
    finally:
        _VISITS.reset(token)


def _visited(counts: Tensor, factor: float = 1.0) -> None:
    found = _VISITS.get()
    if found is not None:
        found.append(factor * float(counts.sum()))


def revisited(counts: Tensor, times: int) -> None:
    """Count the samples of these batches so many times more: each batch is trained on again."""
    _visited(counts, float(times))


class Rows(NamedTuple):
    """Some of a client's samples: their indices, and 1 for those that count, 0 for padding."""

    places: Tensor
    weight: Tensor
    share: float | None = None  # of all samples, where it is the same for every client


def batches(data: Data, batch: int, epochs: int, key: Tensor, among: Rows | None = None) -> tuple[Tensor, Tensor]:
    """Sample indices and 0/1 weights of every mini-batch: two tensors (epochs · batches, batch).

    Each epoch visits every sample (or every sample in `among`) once, in a fresh order. The last batch of an epoch may
    be short. Every sample in a batch counts as a visit (`visits`).
    """
    real = data.weight if among is None else among.weight

    def drawn(real: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        return _drawn(real, batch, epochs, key)

    places, counts = whole(drawn, real, key) or drawn(real, key)
    if among is None or among.share is None:
        _visited(counts)
    else:  # a share of a few samples would be rounded
        _visited(data.weight, epochs * among.share)
    return places if among is None else among.places[places], counts


def _drawn(real: Tensor, batch: int, epochs: int, key: Tensor) -> tuple[Tensor, Tensor]:
    """The same of 0/1 weights (..., samples) and keys (...): for one client, or for a stack."""
    capacity = real.shape[-1]
    batch = min(batch, capacity)
    per_epoch = -(-capacity // batch)
    short = per_epoch * batch - capacity
    if real.dim() == 2 and stack.fits(real):
        found = stack.orders(key, [keys.number(epoch) for epoch in range(epochs)], real, per_epoch * batch)
        return found[0].view(len(real), -1, batch), found[1].view(len(real), -1, batch)
    rows, weights = [], []
    for epoch in range(epochs):
        order = keys.permutation(keys.fold(key, epoch), capacity, real)
        weight = real.gather(-1, order)
        if short:
            order, weight = (F.pad(value, (0, short)) for value in (order, weight))
        rows.append(order.reshape(*order.shape[:-1], per_epoch, batch))
        weights.append(weight.reshape(*weight.shape[:-1], per_epoch, batch))
    return torch.cat(rows, -2), torch.cat(weights, -2)


def take(data: Data, rows: Tensor, weight: Tensor) -> Data:
    """The samples with these indices and these 0/1 weights."""
    return Data(
        data.x[rows],
        data.y[rows],
        weight,
        None if data.t is None else data.t[rows],
        None if data.length is None else data.length[rows],
    )


def parts(data: Data, most: int = PART) -> Iterator[Data]:
    """The rows in parts of at most so many: a forward pass takes memory by the number of its rows."""
    count = data.y.shape[0]
    if count <= most:
        yield data
        return
    for start in range(0, count, most):
        rows = torch.arange(start, min(count, start + most))
        yield take(data, rows, data.weight[rows])


def at_least(counts: Tensor, least: int) -> Tensor:
    """Drop batches of fewer than `least` samples: batch norm cannot take statistics of one sample."""
    kept = counts * (counts.sum(1, keepdim=True) >= least)
    _visited(counts - kept, factor=-1.0)
    return kept


def steps(rows: Tensor, counts: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
    """The number, sample indices and 0/1 weights of each step.

    A client that runs alone skips padding, which comes last in a batch, and batches of padding only. A stack cannot:
    its clients have padding in unlike places.
    """
    alone = not transformed()
    for step in range(rows.shape[0]):
        real = int((counts[step] > 0).sum()) if alone else rows.shape[1]
        if real:
            yield step, rows[step, :real], counts[step, :real]


def step_keys(key: Tensor, counts: Tensor) -> Tensor:
    """Give each step its key, numbered by the steps before it that had samples.

    A stack pads all clients to the same number of batches. Were the padding counted, a small client would draw other
    dropout in a stack than alone.
    """
    before = (counts.sum(1) > 0).cumsum(0) - 1
    numbers = torch.tensor([keys.number(step) for step in range(counts.shape[0])])
    return keys.fold(keys.fold(key, "step"), numbers[before.clamp_min(0)])


def transformed() -> bool:
    """True inside torch.func's vmap or grad."""
    return torch._C._functorch.peek_interpreter_stack() is not None
