"""Local training for one client, written so that a stack of clients can run it at once.

Everything is a pure function of (model, weights, data, key). Mini-batches are fixed shapes with 0/1 weights, so clients
with unlike numbers of samples share one stack: a batch that is all padding changes nothing. Dense networks take a fused
path (`potluck.fused`) that gives the same numbers to rounding; `plain()` switches it off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import grad_and_value
from torch.utils.flop_counter import FlopCounterMode

from potluck import fused, keys
from potluck.fleet import Data, Params
from potluck.models import Model

_PLAIN: ContextVar[bool] = ContextVar("plain", default=False)
Loss = Callable[[Params, Data, Tensor], tuple[Tensor, Params]]


@contextmanager
def plain() -> Iterator[None]:
    """Train by the textbook loop only: what cost counting and the tests of the fused path compare with."""
    token = _PLAIN.set(True)
    try:
        yield
    finally:
        _PLAIN.reset(token)


@dataclass(frozen=True)
class Pull:
    """A term of the gradient that is affine in the weights: scale · w + shift.

    A proximal term is Pull(mu, -mu w0), a control variate Pull(0, c - c_i), weight decay Pull(2 alpha).
    """

    scale: float | Tensor = 0.0
    shift: Params | None = None


def batches(data: Data, batch: int, epochs: int, key: Tensor) -> tuple[Tensor, Tensor]:
    """Row numbers and 0/1 weights of every mini-batch: two tensors (epochs · batches, batch).

    Each epoch visits every sample once in a fresh order; the last batch of an epoch may be short.
    """
    capacity = data.weight.shape[0]
    batch = min(batch, capacity)
    per_epoch = -(-capacity // batch)
    short = per_epoch * batch - capacity
    rows, weights = [], []
    for epoch in range(epochs):
        order = keys.permutation(keys.fold(key, epoch), capacity, data.weight)
        weight = data.weight[order]
        if short:
            order = torch.cat([order, order.new_zeros(short)])
            weight = torch.cat([weight, weight.new_zeros(short)])
        rows.append(order.reshape(per_epoch, batch))
        weights.append(weight.reshape(per_epoch, batch))
    return torch.cat(rows), torch.cat(weights)


def take(data: Data, rows: Tensor, weight: Tensor) -> Data:
    """The named rows of the data, with these weights."""
    return Data(
        data.x[rows],
        data.y[rows],
        weight,
        None if data.t is None else data.t[rows],
        None if data.length is None else data.length[rows],
    )


def mean_loss(model: Model, weights: Params, data: Data, key: Tensor) -> tuple[Tensor, Params]:
    """The mean loss over the samples that count, in training mode, and the buffers that changed."""
    logits, buffers = model.train_logits(weights, data.x, weight=data.weight, key=key, t=data.t, length=data.length)
    losses = model.losses(logits, data.y)
    return (losses * data.weight).sum() / data.weight.sum().clamp_min(1.0), buffers


def sgd(
    model: Model,
    weights: Params,
    data: Data,
    *,
    key: Tensor,
    lr: float | Tensor,
    epochs: int = 1,
    batch: int = 32,
    momentum: float = 0.0,
    pull: Pull | None = None,
    only: frozenset[str] | None = None,
    loss: Loss | None = None,
) -> Params:
    """Mini-batch stochastic gradient descent from `weights`; `only` names the parameters that may move.

    `loss(weights, batch, key) -> (value, changed buffers)` replaces the model's own mean loss.
    """
    rows, counts = batches(data, batch, epochs, key)
    moving = [name for name in weights if name in (only if only is not None else model.trainable)]
    chain = model.chain()
    if chain is not None and loss is None and len(moving) == len(model.trainable) and not _PLAIN.get():
        return fused.dense_sgd(model, chain, weights, data, rows, counts, lr, momentum, pull)
    objective = loss or (lambda w, d, k: mean_loss(model, w, d, k))
    return _descend(objective, weights, moving, data, rows, counts, key, lr, momentum, pull)


def training_macs(model: Model, weights: Params, like: Data) -> float:
    """MACs of one forward and backward pass of one such sample, by PyTorch's own counter."""
    one = take(like, torch.zeros(1, dtype=torch.int64), torch.ones(1))
    with plain(), FlopCounterMode(display=False) as counter:
        sgd(model, weights, one, key=keys.key(0), lr=0.0, batch=1)
    return float(counter.get_total_flops()) / 2.0


def _descend(
    objective: Loss,
    weights: Params,
    moving: list[str],
    data: Data,
    rows: Tensor,
    counts: Tensor,
    key: Tensor,
    lr: float | Tensor,
    momentum: float,
    pull: Pull | None,
) -> Params:
    fixed = {name: value for name, value in weights.items() if name not in moving}
    alone = not _transformed()
    # Alone, the copy is changed in place: half the memory, and the layout of the weights (channels last) is kept.
    values = [weights[name].clone() if alone else weights[name] for name in moving]
    velocity = [torch.zeros_like(value) for value in values] if momentum else []
    for step in range(rows.shape[0]):
        batch = take(data, rows[step], counts[step])
        step_key = keys.fold(key, "step", step)
        gradient, buffers = _gradient(objective, moving, values, fixed, batch, step_key)
        rate = lr * (counts[step].sum() > 0)  # an all-padding batch must not move anything
        with torch.no_grad():
            if pull is not None:
                gradient = [
                    g + pull.scale * w + (pull.shift[name] if pull.shift is not None else 0.0)
                    for g, w, name in zip(gradient, values, moving, strict=True)
                ]
            if momentum:
                velocity = [torch.where(rate > 0, momentum * v + g, v) for v, g in zip(velocity, gradient, strict=True)]
                gradient = velocity
            if alone:
                torch._foreach_add_(values, gradient, alpha=-float(rate))
            else:
                values = [w - rate * g for w, g in zip(values, gradient, strict=True)]
            keep = rate > 0
            fixed |= {name: torch.where(keep, new, fixed[name]) for name, new in buffers.items()}
    trained = dict(zip(moving, values, strict=True))
    return {name: trained.get(name, fixed.get(name, value)) for name, value in weights.items()}


def _gradient(
    objective: Loss, moving: list[str], values: list[Tensor], fixed: Params, batch: Data, key: Tensor
) -> tuple[list[Tensor], Params]:
    if _transformed():

        def value_of(free: list[Tensor]) -> tuple[Tensor, Params]:
            return objective(dict(zip(moving, free, strict=True)) | fixed, batch, key)

        gradient, (_, buffers) = grad_and_value(value_of, has_aux=True)(values)
        return gradient, buffers
    # Alone, ordinary autograd gives the same gradient with less bookkeeping.
    with torch.enable_grad():
        free = [value.detach().requires_grad_() for value in values]
        value, buffers = objective(dict(zip(moving, free, strict=True)) | fixed, batch, key)
        gradient = list(torch.autograd.grad(value, free))
    return gradient, {name: buffer.detach() for name, buffer in buffers.items()}


def _transformed() -> bool:
    """True inside torch.func's vmap or grad."""
    return torch._C._functorch.peek_interpreter_stack() is not None
