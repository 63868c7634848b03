"""Local training for one client, written so that a stack of clients can run it at once.

Everything is a pure function of (model, weights, data, key). Mini-batches have fixed shapes and 0/1 weights, so clients
with unlike numbers of samples share one stack. A batch that is all padding changes nothing. Dense networks take a fused
path (`potluck._fused`) that gives the same numbers up to rounding; `plain()` switches it off.

A client program usually needs one line of this file:

    weights = fit(local.model, task.weights, local.data, task.recipe, key=local.key)

Two calls with one key see the same mini-batches in the same order. Fold the key for a second training in one task:
`keys.fold(local.key, "second")`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.func import grad_and_value
from torch.utils.flop_counter import FlopCounterMode

from potluck import _fused, keys
from potluck.errors import BadInput, Code
from potluck.fleet import Data, Params
from potluck.models import Model

_PLAIN: ContextVar[bool] = ContextVar("plain", default=False)
Loss = Callable[[Params, Data, Tensor], tuple[Tensor, Params]]


@contextmanager
def plain() -> Iterator[None]:
    """Train by the textbook loop only. Cost counting uses it, and the fused path is tested against it."""
    token = _PLAIN.set(True)
    try:
        yield
    finally:
        _PLAIN.reset(token)


def is_plain() -> bool:
    """Whether `plain()` is in force."""
    return _PLAIN.get()


@dataclass(frozen=True)
class Recipe:
    """How a client trains on its own samples.

    A field of a method's settings and of its tasks.
    """

    epochs: int = 1  # passes over the samples
    batch: int = 32  # samples per step
    lr: float = 0.05  # learning rate
    momentum: float = 0.0  # of SGD; starts at zero with every task
    optimiser: Literal["sgd", "adam"] = "sgd"
    clip: float = 0.0  # largest norm of a gradient; 0 does not clip

    def __post_init__(self) -> None:
        for name, fits, wanted in (
            ("epochs", self.epochs >= 1, "1 or more"),
            ("batch", self.batch >= 1, "1 or more"),
            ("lr", 0.0 < self.lr < float("inf"), "above 0 and finite"),
            ("momentum", 0.0 <= self.momentum < 1.0, "at least 0 and below 1"),
            ("momentum", not self.momentum or self.optimiser == "sgd", "0 with the optimiser adam"),
            ("optimiser", self.optimiser in ("sgd", "adam"), "sgd or adam"),
            ("clip", self.clip >= 0, "0 or more"),
        ):
            if not fits:
                raise BadInput(Code.SETTING_VALUE, f"{name}: must be {wanted}, got {getattr(self, name)}.")


@dataclass(frozen=True)
class Pull:
    """A term that is added to the gradient and is affine in the weights: scale · w + shift.

    A step is then w - lr (gradient + scale · w + shift), so a positive `scale` pulls the weights towards zero.
    FedProx is Pull(mu, -mu w0), a control variate of SCAFFOLD is Pull(0, c - c_i), weight decay is Pull(2 alpha).
    """

    scale: float | Tensor = 0.0
    shift: Params | None = None


class Rows(NamedTuple):
    """Some of a client's samples: their indices, and 1 for those that count, 0 for padding."""

    places: Tensor
    weight: Tensor


def batches(data: Data, batch: int, epochs: int, key: Tensor, among: Rows | None = None) -> tuple[Tensor, Tensor]:
    """Sample indices and 0/1 weights of every mini-batch: two tensors (epochs · batches, batch).

    Each epoch visits every sample (or every sample in `among`) once, in a fresh order. The last batch of an epoch may
    be short.
    """
    real = data.weight if among is None else among.weight
    capacity = real.shape[0]
    batch = min(batch, capacity)
    per_epoch = -(-capacity // batch)
    short = per_epoch * batch - capacity
    rows, weights = [], []
    for epoch in range(epochs):
        order = keys.permutation(keys.fold(key, epoch), capacity, real)
        weight = real[order]
        if short:
            order = torch.cat([order, order.new_zeros(short)])
            weight = torch.cat([weight, weight.new_zeros(short)])
        rows.append(order.reshape(per_epoch, batch))
        weights.append(weight.reshape(per_epoch, batch))
    places = torch.cat(rows)
    return places if among is None else among.places[places], torch.cat(weights)


def take(data: Data, rows: Tensor, weight: Tensor) -> Data:
    """The samples with these indices and these 0/1 weights."""
    return Data(
        data.x[rows],
        data.y[rows],
        weight,
        None if data.t is None else data.t[rows],
        None if data.length is None else data.length[rows],
    )


def at_least(counts: Tensor, least: int) -> Tensor:
    """Drop batches of fewer than `least` samples: batch norm cannot take statistics of one sample."""
    return counts * (counts.sum(1, keepdim=True) >= least)


def steps(rows: Tensor, counts: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
    """The number, sample indices and 0/1 weights of each step.

    A client that runs alone skips padding, which comes last in a batch, and batches of padding only. A stack cannot:
    its clients have padding in unlike places.
    """
    alone = not _transformed()
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


def mean_loss(model: Model, weights: Params, data: Data, key: Tensor) -> tuple[Tensor, Params]:
    """The mean loss over the samples that count, in training mode, and the buffers it changed."""
    logits, buffers = model.train_logits(weights, data.x, weight=data.weight, key=key, t=data.t, length=data.length)
    losses = model.losses(logits, data.y)
    return (losses * data.weight).sum() / data.weight.sum().clamp_min(1.0), buffers


def fit(
    model: Model,
    weights: Params,
    data: Data,
    recipe: Recipe,
    *,
    key: Tensor,
    pull: Pull | None = None,
    only: frozenset[str] | None = None,
    loss: Loss | None = None,
    among: Rows | None = None,
) -> Params:
    """Train by the recipe: `sgd` or `adam` with its numbers; the other arguments are theirs."""
    if recipe.optimiser == "adam":
        if pull is not None or among is not None:
            raise BadInput(Code.SETTINGS_CLASH, "method.recipe.optimiser: must be sgd for this method, got adam.")
        return adam(
            model, weights, data, key=key, lr=recipe.lr, epochs=recipe.epochs, batch=recipe.batch, clip=recipe.clip,
            only=only, loss=loss,
        )  # fmt: skip
    return sgd(
        model, weights, data, key=key, lr=recipe.lr, epochs=recipe.epochs, batch=recipe.batch,
        momentum=recipe.momentum, clip=recipe.clip, pull=pull, only=only, loss=loss, among=among,
    )  # fmt: skip


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
    clip: float = 0.0,
    among: Rows | None = None,
) -> Params:
    """Mini-batch stochastic gradient descent from `weights`.

    `only` names the parameters that may move (default: all trainable ones), `among` the samples to train on (default:
    all). `loss(weights, batch, key) -> (value, changed buffers)` replaces the model's mean loss. A gradient longer than
    `clip` is shortened to that norm, unless `clip` is 0; recurrent networks need it.
    """
    rows, counts = batches(data, batch, epochs, key, among)
    moving = [name for name in weights if name in (only if only is not None else model.trainable)]
    chain = model.chain()
    if chain is not None and loss is None and not clip and len(moving) == len(model.trainable) and not _PLAIN.get():
        return _fused.dense_sgd(model, chain, weights, data, rows, counts, lr, momentum, pull)
    objective = loss or (lambda w, d, k: mean_loss(model, w, d, k))
    return _descend(objective, weights, moving, data, rows, counts, key, lr, momentum, pull, clip)


def adam(
    model: Model,
    weights: Params,
    data: Data,
    *,
    key: Tensor,
    lr: float | Tensor,
    epochs: int = 1,
    batch: int = 32,
    only: frozenset[str] | None = None,
    loss: Loss | None = None,
    clip: float = 0.0,
) -> Params:
    """Mini-batch Adam (Kingma and Ba, ICLR 2015) from `weights` with fresh moments; arguments as for `sgd`."""
    rows, counts = batches(data, batch, epochs, key)
    moving = [name for name in weights if name in (only if only is not None else model.trainable)]
    objective = loss or (lambda w, d, k: mean_loss(model, w, d, k))
    fixed = {name: value for name, value in weights.items() if name not in moving}
    values = [weights[name] for name in moving]
    first, second = [torch.zeros_like(v) for v in values], [torch.zeros_like(v) for v in values]
    taken, own_keys = torch.zeros(()), step_keys(key, counts)
    for step, row, count in steps(rows, counts):
        part = take(data, row, count)
        slope, buffers = slope_of(objective, moving, values, fixed, part, own_keys[step])
        live = count.sum() > 0  # an all-padding batch must not move anything
        with torch.no_grad():
            slope = clipped(slope, clip) if clip else slope
            taken = taken + live
            values, first, second = adam_step(values, first, second, slope, lr, taken, live)
            fixed |= {name: torch.where(live, new, fixed[name]) for name, new in buffers.items()}
    trained = dict(zip(moving, values, strict=True))
    return {name: trained.get(name, fixed.get(name, value)) for name, value in weights.items()}


def adam_step(
    values: list[Tensor],
    first: list[Tensor],
    second: list[Tensor],
    gradient: list[Tensor],
    lr: float | Tensor,
    taken: Tensor,
    live: Tensor | bool = True,
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """The values and both moments after the `taken`-th step; unchanged where `live` is false."""
    keep = torch.as_tensor(live)
    first = [torch.where(keep, 0.9 * m + 0.1 * g, m) for m, g in zip(first, gradient, strict=True)]
    second = [torch.where(keep, 0.999 * v + 0.001 * g * g, v) for v, g in zip(second, gradient, strict=True)]
    since = taken.clamp_min(1.0)
    one, two = 1.0 - 0.9**since, 1.0 - 0.999**since
    rate = lr * keep
    values = [w - rate * (m / one) / ((v / two).sqrt() + 1e-8) for w, m, v in zip(values, first, second, strict=True)]
    return values, first, second


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
    clip: float,
) -> Params:
    fixed = {name: value for name, value in weights.items() if name not in moving}
    alone = not _transformed()
    # Alone, the copy is changed in place: half the memory, and the layout of the weights (channels last) is kept.
    values = [weights[name].clone() if alone else weights[name] for name in moving]
    velocity = [torch.zeros_like(value) for value in values] if momentum else []
    own_keys = step_keys(key, counts)
    for step, row, count in steps(rows, counts):
        batch = take(data, row, count)
        slope, buffers = slope_of(objective, moving, values, fixed, batch, own_keys[step])
        rate = lr * (count.sum() > 0)  # an all-padding batch must not move anything
        with torch.no_grad():
            if clip:
                slope = clipped(slope, clip)
            if pull is not None:
                slope = [
                    g + pull.scale * w + (pull.shift[name] if pull.shift is not None else 0.0)
                    for g, w, name in zip(slope, values, moving, strict=True)
                ]
            if momentum:
                velocity = [torch.where(rate > 0, momentum * v + g, v) for v, g in zip(velocity, slope, strict=True)]
                slope = velocity
            if alone:
                torch._foreach_add_(values, slope, alpha=-float(rate))
            else:
                values = [w - rate * g for w, g in zip(values, slope, strict=True)]
            keep = rate > 0
            fixed |= {name: torch.where(keep, new, fixed[name]) for name, new in buffers.items()}
    trained = dict(zip(moving, values, strict=True))
    return {name: trained.get(name, fixed.get(name, value)) for name, value in weights.items()}


def clipped(slope: list[Tensor], most: float) -> list[Tensor]:
    """Shorten a gradient to the norm `most` if it is longer."""
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in slope]))
    return [g * (most / norm.clamp_min(most)) for g in slope]


def slope_of(
    objective: Loss, moving: list[str], values: list[Tensor], fixed: Params, batch: Data, key: Tensor
) -> tuple[list[Tensor], Params]:
    """The gradient of the objective by the moving parameters, and the buffers that the objective returns."""
    if _transformed():

        def value_of(free: list[Tensor]) -> tuple[Tensor, Params]:
            return objective(dict(zip(moving, free, strict=True)) | fixed, batch, key)

        slope, (_, buffers) = grad_and_value(value_of, has_aux=True)(values)
        return slope, buffers
    # Alone, ordinary autograd gives the same gradient with less bookkeeping.
    with torch.enable_grad():
        free = [value.detach().requires_grad_() for value in values]
        value, buffers = objective(dict(zip(moving, free, strict=True)) | fixed, batch, key)
        slope = list(torch.autograd.grad(value, free))
    return slope, {name: buffer.detach() for name, buffer in buffers.items()}


def _transformed() -> bool:
    """True inside torch.func's vmap or grad."""
    return torch._C._functorch.peek_interpreter_stack() is not None
