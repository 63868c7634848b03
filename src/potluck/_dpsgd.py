"""DP-SGD: each sample's gradient is clipped, and each step gets noise. `learn.fit` trains so inside `noised(...)`.

Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, Algorithm 1. A step takes each sample with the
probability batch / n (Poisson sampling, as the accounting assumes) and divides by the batch size, not by the number
drawn. Batches have a fixed shape, so that clients share a stack: room for `batch` and ten standard deviations more. A
draw beyond that is left out; its probability is below 1e-15 (Bernstein's inequality).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import grad, vmap

from potluck import keys
from potluck._batches import take
from potluck._descent import Loss, Pull, stepped
from potluck.fleet import Data, Params


@dataclass(frozen=True)
class StepNoise:
    """What each step of training does to gradients."""

    clip: float  # C, the largest norm of a sample's gradient
    noise: float  # sigma, in units of C
    secret: int = 0  # folded into the noise where the seed is known to others


_NOISED: ContextVar[StepNoise | None] = ContextVar("noised", default=None)


@contextmanager
def noised(step: StepNoise | None) -> Iterator[None]:
    """Train with DP-SGD in this block; None trains as always."""
    token = _NOISED.set(step)
    try:
        yield
    finally:
        _NOISED.reset(token)


def step_noise() -> StepNoise | None:
    """What is in force."""
    return _NOISED.get()


def poisson(data: Data, batch: int, epochs: int, key: Tensor) -> tuple[Tensor, Tensor]:
    """Sample indices and 0/1 weights of every step: two tensors (steps, room).

    A client of n samples takes epochs · ceil(n / batch) steps; those that a stack has beyond are empty, and marked by
    -1 in the first weight.
    """
    capacity = data.weight.shape[0]
    samples = data.weight.sum().clamp_min(1.0)
    room = min(capacity, math.ceil(batch + 10.0 * batch**0.5 + 20.0))
    own = epochs * torch.ceil(samples / size_of(data, batch))
    rows, counts = [], []
    for step in range(epochs * max(1, -(-capacity // batch))):
        draw = keys.uniform(keys.fold(key, "poisson", step), (capacity,))
        drawn = (draw * samples < batch).float() * data.weight
        order = torch.argsort(-drawn, stable=True)[:room]
        rows.append(order)
        counts.append(torch.where(step < own, drawn[order], -torch.ones(room)))
    return torch.stack(rows), torch.stack(counts)


def size_of(data: Data, batch: int) -> Tensor:
    """The expected size of a batch: all samples, where there are fewer than `batch`."""
    return data.weight.sum().clamp(1.0, float(batch))


def private_sgd(
    objective: Loss,
    weights: Params,
    moving: list[str],
    data: Data,
    batch: int,
    epochs: int,
    key: Tensor,
    lr: float | Tensor,
    momentum: float,
    pull: Pull | None,
) -> Params:
    """Algorithm 1 of Abadi et al. from `weights`. Buffers stay as they are."""
    fixed = {name: value for name, value in weights.items() if name not in moving}
    values = [weights[name] for name in moving]
    velocity = [torch.zeros_like(value) for value in values] if momentum else []
    in_force = _NOISED.get()
    assert in_force is not None
    key = keys.fold(key, "dp", in_force.secret)  # who is drawn must be as secret as the noise
    rows, counts = poisson(data, batch, epochs, key)
    size = size_of(data, batch)
    for step in range(rows.shape[0]):
        part, own = take(data, rows[step], counts[step]), keys.fold(key, "step", step)
        slope = private_slope(objective, moving, values, fixed, part, own, size)
        rate = torch.as_tensor(lr) * (counts[step][0] >= 0)  # a step that drew no sample has its noise
        values, velocity = stepped(values, velocity, slope, moving, rate, momentum, pull)
    trained = dict(zip(moving, values, strict=True))
    return {name: trained.get(name, value) for name, value in weights.items()}


def private_slope(
    objective: Loss, moving: list[str], values: list[Tensor], fixed: Params, batch: Data, key: Tensor, size: Tensor
) -> list[Tensor]:
    """Algorithm 1: the noisy sum of clipped gradients by the size of a batch; zero past the last step."""
    step = _NOISED.get()
    assert step is not None
    live = (batch.weight[0] >= 0).float()
    weight = batch.weight.clamp_min(0.0)
    one = torch.ones(1)

    def loss(free: list[Tensor], place: Tensor) -> Tensor:
        alone = take(batch, place[None], one)
        return objective(dict(zip(moving, free, strict=True)) | fixed, alone, key)[0]

    each = vmap(grad(loss), in_dims=(None, 0), randomness="different")(values, torch.arange(weight.shape[0]))
    norms = torch.sqrt(sum(g.flatten(1).square().sum(1) for g in each))
    scale = weight * (step.clip / norms.clamp_min(step.clip))
    spread = step.noise * step.clip
    noise = [spread * keys.normal(keys.fold(key, "noise", i), g.shape[1:]) for i, g in enumerate(each)]
    return [live * (torch.tensordot(scale, g, 1) + own) / size for g, own in zip(each, noise, strict=True)]
