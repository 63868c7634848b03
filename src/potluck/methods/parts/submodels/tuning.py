"""Tuning on the server's own rows: a few free numbers are stepped through a model that they make, the best epoch kept.

The server's rows are divided once into *tune* and *validate* (80/20); every choice of an epoch or a restart is made
by accuracy on *validate*, ties by loss. Members (clients of one width) are tuned together: as one stack where the
model can be stacked, one after another where grouped convolutions would be slower (as the engine does); either way
with one Adam over all of them, whose steps do not mix members.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from potluck import keys, learn
from potluck.fleet import Data, Params
from potluck.models import Model

Make = Callable[[Params, Any], Params]  # (free numbers of one member, what is fixed for it) -> a whole model


@dataclass(frozen=True)
class Rows:
    """The server's rows in two parts."""

    tune: Data
    valid: Data

    def __len__(self) -> int:
        return int(self.tune.weight.shape[0])


def divided(data: Data, key: Tensor, share: float = 0.2) -> Rows:
    """Tune and validate: at least one row each where there are two."""
    count = int(data.weight.shape[0])
    order = keys.permutation(key, count)
    held = min(count - 1, max(1, round(share * count))) if count > 1 else 0
    parts = [learn.take(data, rows, data.weight[rows]) for rows in (order[held:], order[:held])]
    return Rows(parts[0], parts[1] if held else parts[0])


def cosine(epochs: int, high: float, low: float = 1e-5, half: int = 4) -> list[float]:
    """Equation (2): the rate of every epoch, counted from 0 in each phase."""
    return [low + 0.5 * (high - low) * (1.0 + math.cos(math.pi * epoch / half)) for epoch in range(epochs)]


@dataclass(frozen=True)
class Tuned:
    """What tuning left, members along the first axis."""

    free: Params
    buffers: Params  # the norms' statistics, as the tuning batches left them
    start: list[float]  # accuracy on validate before
    best: list[float]  # and of the epoch kept


def tune(
    model: Model, make: Make, free: Params, fixed: Params, rows: Rows,
    *, rates: Sequence[float], batch: int, key: Tensor, choose: bool = True,
) -> Tuned:  # fmt: skip
    """Step the free numbers of all members (first axis of `free` and `fixed`) by Adam at one rate per epoch.

    The start counts as an epoch, so the outcome is never worse on validate; `choose = False` takes the last one.
    """
    members = next(iter(free.values())).shape[0]
    together = model.kind != "conv"
    names = list(free)
    values = [free[name] for name in names]
    first, second = [torch.zeros_like(v) for v in values], [torch.zeros_like(v) for v in values]
    buffers = _each(members, together, lambda f, x: _buffers(model, make(f, x)), free, fixed)

    def built(f: Params, x: Params, b: Params) -> Params:
        return make(f, x) | b

    def loss(f: Params, x: Params, b: Params, data: Data, step: Tensor) -> tuple[Tensor, Params]:
        return learn.mean_loss(model, built(f, x, b), data, step)

    def score(f: Params, b: Params) -> Tensor:
        return torch.stack(
            list(
                _each(members, together, lambda p, x, q: {"s": _score(model, built(p, x, q), rows.valid)}, f, fixed, b)[
                    "s"
                ]
            )
        )

    def current() -> Params:
        return dict(zip(names, values, strict=True))

    kept, kept_buffers = current(), buffers
    begun = best = score(kept, buffers)
    taken = torch.zeros(())
    for epoch, rate in enumerate(rates):
        orders, counts = learn.batches(rows.tune, batch, 1, keys.fold(key, epoch))
        for step in range(orders.shape[0]):
            data = learn.take(rows.tune, orders[step], counts[step])
            own = keys.fold(key, epoch, step)
            gradient, changed = _gradients(members, together, loss, current(), fixed, buffers, data, own)
            taken = taken + 1
            values, first, second = learn.adam_step(values, first, second, [gradient[n] for n in names], rate, taken)
            buffers = buffers | changed
        found = score(current(), buffers)
        better = (found[:, 0] > best[:, 0]) | ((found[:, 0] == best[:, 0]) & (found[:, 1] > best[:, 1]))
        if not choose:
            better = torch.ones_like(better)
        kept = {name: _pick(better, value, kept[name]) for name, value in current().items()}
        kept_buffers = {name: _pick(better, value, kept_buffers[name]) for name, value in buffers.items()}
        best = torch.where(better[:, None], found, best)
    return Tuned(kept, kept_buffers, begun[:, 0].tolist(), best[:, 0].tolist())


def accuracy(model: Model, weights: Params, data: Data) -> float:
    return float(_score(model, weights, data)[0]) if data.weight.shape[0] else 0.0


def _score(model: Model, weights: Params, data: Data) -> Tensor:
    """Accuracy and minus the loss, in evaluation mode."""
    with torch.no_grad():
        logits = model.logits(weights, data.x, t=data.t, length=data.length)
        right = (logits.argmax(-1) == data.y).to(torch.float32)
        total = data.weight.sum().clamp_min(1.0)
        loss = (model.losses(logits, data.y) * data.weight).sum() / total
        return torch.stack([(right * data.weight).sum() / total, -loss])


def _buffers(model: Model, weights: Params) -> Params:
    return {name: value for name, value in weights.items() if name not in model.trainable}


def _pick(chosen: Tensor, new: Tensor, old: Tensor) -> Tensor:
    return torch.where(chosen.reshape(-1, *(1,) * (new.dim() - 1)), new, old)


def _each(members: int, together: bool, function: Callable[..., Params], *stacks: Params) -> Params:
    with torch.no_grad():
        if together:
            return vmap(function)(*stacks)
        rows = [
            function(*({name: value[k] for name, value in stack.items()} for stack in stacks)) for k in range(members)
        ]
        return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def _gradients(
    members: int, together: bool, loss: Callable[..., tuple[Tensor, Params]],
    free: Params, fixed: Params, buffers: Params, data: Data, key: Tensor,
) -> tuple[Params, Params]:  # fmt: skip
    if together:
        found, (_, changed) = vmap(lambda f, x, b: grad_and_value(lambda g: loss(g, x, b, data, key), has_aux=True)(f))(
            free, fixed, buffers
        )
        return found, changed
    gradients, changes = [], []
    for k in range(members):
        own = {name: value[k].detach().requires_grad_() for name, value in free.items()}
        with torch.enable_grad():
            value, changed = loss(
                own, {n: v[k] for n, v in fixed.items()}, {n: v[k] for n, v in buffers.items()}, data, key
            )
            found = torch.autograd.grad(value, list(own.values()))
        gradients.append(dict(zip(own, found, strict=True)))
        changes.append({name: buffer.detach() for name, buffer in changed.items()})
    return (
        {name: torch.stack([g[name] for g in gradients]) for name in free},
        {name: torch.stack([c[name] for c in changes]) for name in changes[0]},
    )
