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
from typing import Literal

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from potluck import _convolved, _few_labels, _fused, _recurrent, keys
from potluck._batches import Rows, at_least, batches, parts, revisited, step_keys, steps, take, visits
from potluck._descent import Loss, Pull, adam_step, clipped, descend, slope_of
from potluck._dpsgd import StepNoise, noised, private_sgd, step_noise
from potluck._recurrent import Bound
from potluck.errors import BadInput, Code
from potluck.fleet import Data, Params
from potluck.models import Model
from potluck.tasks import Classification
from potluck.tensors import mix

__all__ = [
    "Bound", "Loss", "Pull", "Recipe", "Rows", "StepNoise", "adam", "adam_step", "at_least", "batches", "bound_sgd",
    "clipped", "elsewhere", "fit", "fit_mixed", "is_plain", "mean_loss", "mixed", "noised", "parts", "plain",
    "revisited", "row_losses", "sgd", "slope_of", "step_keys", "steps", "take", "training_macs", "visits",
]  # fmt: skip

MOST_EPOCHS, LARGEST_BATCH = 1_000_000, 1 << 20  # a task is priced with blank data of two batches
_PLAIN: ContextVar[bool] = ContextVar("plain", default=False)
_ELSEWHERE: ContextVar[Callable[..., Params] | None] = ContextVar("elsewhere", default=None)


@contextmanager
def elsewhere(train: Callable[..., Params]) -> Iterator[None]:
    """Let `train` do what `fit` would do in this block, as a board does. Training in any other way is refused."""
    token = _ELSEWHERE.set(train)
    try:
        yield
    finally:
        _ELSEWHERE.reset(token)


def _here() -> None:
    if _ELSEWHERE.get() is not None:
        raise BadInput(
            Code.BOARD_SETTINGS,
            "fleet.boards: this method does not train by `fit` alone, so boards cannot train for it.",
        )


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
            ("epochs", 1 <= self.epochs <= MOST_EPOCHS, f"1 to {MOST_EPOCHS}"),
            ("batch", 1 <= self.batch <= LARGEST_BATCH, f"1 to {LARGEST_BATCH}"),
            ("lr", 0.0 < self.lr < float("inf"), "above 0 and finite"),
            ("momentum", 0.0 <= self.momentum < 1.0, "at least 0 and below 1"),
            ("momentum", not self.momentum or self.optimiser == "sgd", "0 with the optimiser adam"),
            ("optimiser", self.optimiser in ("sgd", "adam"), "sgd or adam"),
            ("clip", 0 <= self.clip < float("inf"), "0 or more and finite"),
        ):
            if not fits:
                raise BadInput(Code.SETTING_VALUE, f"{name}: must be {wanted}, got {getattr(self, name)}.")


def mean_loss(model: Model, weights: Params, data: Data, key: Tensor) -> tuple[Tensor, Params]:
    """The mean loss over the samples that count, in training mode, and the buffers it changed."""
    if isinstance(model.task, Classification) and model.task.unlabelled:
        return _few_labels.loss(model, model.task, weights, data, key)
    logits, buffers = model.train_logits(weights, data.x, weight=data.weight, key=key, t=data.t, length=data.length)
    losses = model.losses(logits, data.y)
    return (losses * data.weight).sum() / data.weight.sum().clamp_min(1.0), buffers


def row_losses(model: Model, weights: Params, data: Data) -> Tensor:
    """The loss of each sample outside of training, by parts: a client needs memory for one part only."""
    return torch.cat(
        [model.losses(model.logits(weights, part.x, t=part.t, length=part.length), part.y) for part in parts(data)]
    )


def _mini_batches(
    model: Model, data: Data, batch: int, epochs: int, key: Tensor, among: Rows | None = None
) -> tuple[Tensor, Tensor]:
    """`batches`; where rows lack labels, with labelled rows beside each."""
    rows, counts = batches(data, batch, epochs, key, among)
    if isinstance(model.task, Classification) and model.task.unlabelled:
        return _few_labels.beside(data, rows, counts, key)
    return rows, counts


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
    away = _ELSEWHERE.get()
    if away is not None:
        return away(model, weights, data, recipe, key=key, pull=pull, only=only, loss=loss, among=among)
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
    _here()
    moving = [name for name in weights if name in (only if only is not None else model.trainable) - model.resting]
    if step_noise() is not None:
        if among is not None:
            raise BadInput(Code.PRIVACY, "privacy.unit: must not be sample where a method selects samples.")
        objective = loss or (lambda w, d, k: mean_loss(model, w, d, k))
        return private_sgd(objective, weights, moving, data, batch, epochs, key, lr, momentum, pull)
    rows, counts = _mini_batches(model, data, batch, epochs, key, among)
    chain = model.chain()
    if chain is not None and loss is None and not clip and model.task.fused and not _PLAIN.get():
        return _fused.dense_sgd(model, chain, weights, data, rows, counts, lr, momentum, pull, frozenset(moving))
    net = _recurrent.net_of(model, weights, data) if loss is None and not _PLAIN.get() else None
    if net is not None:
        given = (model, net, weights, data, rows, counts, lr, frozenset(moving))
        return _recurrent.descend(*given, momentum=momentum, clip=clip, pull=pull)[0]
    images = _convolved.net_of(model, weights, data) if loss is None and not _PLAIN.get() else None
    if images is not None:
        shown = (model, images, weights, data, rows, counts, lr, frozenset(moving))
        return _convolved.descend(*shown, momentum=momentum, clip=clip, pull=pull)
    objective = loss or (lambda w, d, k: mean_loss(model, w, d, k))
    return descend(objective, weights, moving, data, rows, counts, key, lr, momentum, pull, clip)


def bound_sgd(
    model: Model,
    weights: Params,
    data: Data,
    rows: Tensor,
    counts: Tensor,
    *,
    lr: float,
    momentum: float = 0.0,
    clip: float = 0.0,
    pull: Pull | None = None,
    bound: Bound | None = None,
) -> tuple[Params, Tensor] | None:
    """SGD of a CFC, one of whose heads is bound (FedCFC), by compiled kernels; None where they cannot train it.

    The pull comes before the gradient is clipped. The second value is the sum of the gradients that `bound` asks for.
    """
    net = None if is_plain() else _recurrent.net_of(model, weights, data)
    if net is None or (bound is not None and not net.bindable):
        return None
    given = (model, net, weights, data, rows, counts, lr, model.trainable - model.resting)
    return _recurrent.descend(*given, momentum=momentum, clip=clip, pull=pull, bound=bound, pull_first=True)


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
    _here()
    if step_noise() is not None:
        raise BadInput(Code.PRIVACY, "method.recipe.optimiser: must be sgd with privacy.unit = sample, got adam.")
    rows, counts = _mini_batches(model, data, batch, epochs, key)
    moving = [name for name in weights if name in (only if only is not None else model.trainable) - model.resting]
    net = _recurrent.net_of(model, weights, data) if loss is None and not _PLAIN.get() else None
    if net is not None:
        given = (model, net, weights, data, rows, counts, lr, frozenset(moving))
        return _recurrent.descend(*given, adam=True, clip=clip)[0]
    images = _convolved.net_of(model, weights, data) if loss is None and not _PLAIN.get() else None
    if images is not None:
        shown = (model, images, weights, data, rows, counts, lr, frozenset(moving))
        return _convolved.descend(*shown, adam=True, clip=clip)
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


def fit_mixed(
    model: Model, common: Params, own: Params, share: Tensor, data: Data, recipe: Recipe, *, key: Tensor
) -> tuple[Params, Params]:
    """Train two models on the same mini-batches: `common` by itself, and `own` in the mix of both (`mixed`)."""
    _here()
    chain = model.chain()
    usual = recipe.optimiser == "sgd" and not recipe.momentum and not recipe.clip
    if chain is not None and usual and model.task.fused and not _PLAIN.get():
        rows, counts = batches(data, recipe.batch, recipe.epochs, key)
        return _fused.mixed_sgd(model, chain, common, own, share, data, rows, counts, recipe.lr)

    def loss(weights: Params, batch: Data, step: Tensor) -> tuple[Tensor, Params]:
        w, v = _without("common ", weights), _without("own ", weights)
        first, buffers = mean_loss(model, w, batch, step)
        second, own_buffers = mean_loss(model, mixed(model, w, v, share), batch, step)
        return first + second, _under("common ", buffers) | _under("own ", own_buffers)

    both = _under("common ", common) | _under("own ", own)
    moving = frozenset(mark + name for mark in ("common ", "own ") for name in model.trainable)
    both = fit(model, both, data, recipe, key=key, only=moving, loss=loss)
    return _without("common ", both), _without("own ", both)


def mixed(model: Model, common: Params, own: Params, share: Tensor) -> Params:
    """share · own + (1 - share) · common; no gradient reaches `common`. Batch statistics are those of `own`."""
    resting = {name: value.detach() if name in model.trainable else own[name] for name, value in common.items()}
    return mix(resting, own, share)


def _under(mark: str, weights: Params) -> Params:
    return {mark + name: value for name, value in weights.items()}


def _without(mark: str, weights: Params) -> Params:
    return {name.removeprefix(mark): value for name, value in weights.items() if name.startswith(mark)}


def training_macs(model: Model, weights: Params, like: Data) -> float:
    """MACs of one forward and backward pass of one such sample, by PyTorch's own counter."""
    one = take(like, torch.zeros(1, dtype=torch.int64), torch.ones(1))
    with plain(), FlopCounterMode(display=False) as counter:
        sgd(model, weights, one, key=keys.key(0), lr=0.0, batch=1)
    return float(counter.get_total_flops()) / 2.0
