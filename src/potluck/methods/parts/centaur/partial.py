"""Training that chooses its samples anew every epoch: what a constrained device does with the end of a network.

Mo et al. (Centaur), section 4.3. The losses met while training are written down, so that the next choice costs no pass
of its own; the optimiser goes on from epoch to epoch. One loop serves a classifier on features that were kept, and a
whole network at the access point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from potluck import keys
from potluck.fleet import Data, Params
from potluck.learn import Pull, Recipe, at_least, batches, is_plain, slope_of, steps, take
from potluck.methods.parts.selection import Chosen
from potluck.models.split import Split

Objective = Callable[[Params, Data, Tensor], tuple[Tensor, Params]]  # -> each sample's loss, buffers that changed
Choose = Callable[[int, Params, Tensor], Chosen]  # (epoch, weights now, losses now) -> what to train on
AT_ONCE = 32  # samples encoded together where a simulation need not mind a device's memory
_LOSSES = "losses of this batch"  # beside the buffers, out of the gradient's way


@dataclass(frozen=True)
class Fitted:
    weights: Params
    losses: Tensor  # of every sample, as last met
    first: Chosen | None  # the choice of the first epoch
    send: Tensor  # 0/1, chosen for the partner in any epoch
    trained: Tensor  # samples trained on, over all epochs
    steps: Tensor  # batches that moved something
    visited: Tensor  # 0/1, met in the last epoch


def collected(data: Data, share: float, order: Tensor) -> tuple[Data, Tensor]:
    """The part of a client's samples that it has gathered so far, a prefix of a fixed random order; and their rows.

    Room is made for the share of the padded rows, whoever they belong to; a client alone has no padding.
    """
    capacity = data.weight.shape[0]
    rows = keys.permutation(order, capacity, data.weight)[: max(1, -int(-share * capacity // 1))]
    n = data.weight.sum()
    here = torch.floor(share * n + 1e-4).clamp_min(1.0).minimum(n)
    return take(data, rows, (torch.arange(len(rows)) < here).to(data.weight.dtype)), rows


def features_of(split: Split, encoder: Params, data: Data, stream: int) -> Tensor:
    """Every sample's features, `stream` samples at a time: what a small device has room for beside the model.

    Every group is filled up to the same size: the kernels then give a sample the same bits in whichever group it is.
    """
    size = stream if is_plain() else AT_ONCE
    n = data.x.shape[0]
    missing = -n % size

    def filled(value: Tensor) -> Tensor:
        return torch.cat([value, value.new_zeros(missing, *value.shape[1:])]) if missing else value

    x = filled(data.x)
    extra = {name: filled(value) for name in split.given if (value := getattr(data, name)) is not None}
    parts = [
        split.encode(encoder, x[i : i + size], **{name: value[i : i + size] for name, value in extra.items()})
        for i in range(0, n + missing, size)
    ]
    return torch.cat(parts)[:n]


def fit(
    objective: Objective,
    weights: Params,
    moving: list[str],
    data: Data,
    losses: Tensor,
    choose: Choose,
    recipe: Recipe,
    *,
    key: Tensor,
    epochs: int,
    pull: Pull | None = None,
    least: int = 1,
) -> Fitted:
    """Stochastic gradient descent on the samples `choose` keeps, chosen at the start of every epoch.

    `epochs` takes the place of the recipe's: devices that were offline train longer.
    """

    def mean(now: Params, part: Data, at: Tensor) -> tuple[Tensor, Params]:
        each, buffers = objective(now, part, at)
        total = part.weight.sum().clamp_min(1.0)
        return (each * part.weight).sum() / total, {**buffers, _LOSSES: each.detach()}

    fixed = {name: value for name, value in weights.items() if name not in moving}
    values = [weights[name] for name in moving]
    velocity = [torch.zeros_like(value) for value in values]
    trained, taken = torch.zeros_like(data.weight.sum()), torch.zeros_like(data.weight.sum())
    visited, send = data.weight * 0, data.weight * 0
    first: Chosen | None = None
    for epoch in range(epochs):
        chosen = choose(epoch, dict(zip(moving, values, strict=True)) | fixed, losses)
        first = chosen if first is None else first
        send = torch.maximum(send, chosen.send)
        at = keys.fold(key, "epoch", epoch)
        rows, counts = batches(replace(data, weight=chosen.keep), recipe.batch, 1, at)
        counts = at_least(counts, least)
        visited = data.weight * 0
        for step, row, count in steps(rows, counts):
            slope, left = slope_of(mean, moving, values, fixed, take(data, row, count), keys.fold(at, step))
            moves = count.sum() > 0
            # A place past the end takes what padding would write.
            place = torch.where(count > 0, row, len(losses))
            losses = torch.cat([losses, losses[:1]]).scatter(0, place, left.pop(_LOSSES))[:-1]
            visited = torch.cat([visited, visited[:1]]).scatter(0, place, count)[:-1]
            if pull is not None:
                slope = [
                    g + pull.scale * w + (0.0 if pull.shift is None else pull.shift[name])
                    for g, w, name in zip(slope, values, moving, strict=True)
                ]
            velocity = [torch.where(moves, recipe.momentum * v + g, v) for v, g in zip(velocity, slope, strict=True)]
            values = [torch.where(moves, w - recipe.lr * v, w) for w, v in zip(values, velocity, strict=True)]
            fixed |= {name: torch.where(moves, new, fixed[name]) for name, new in left.items()}
            taken = taken + moves.to(taken.dtype)
        trained = trained + counts.sum()
    moved = dict(zip(moving, values, strict=True))
    result = {name: moved.get(name, fixed.get(name, value)) for name, value in weights.items()}
    return Fitted(result, losses, first, send, trained, taken, visited)
