"""Uploads that hold part of a model: some of its layers, and of a layer the leading channels.

An upload is a model with fewer names or smaller tensors. A tensor that is smaller holds the leading entries of each
axis: `value[:a, :b]`. So neither masks nor indices travel, and an upload that holds everything is an ordinary model.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from potluck.fleet import Params
from potluck.rows import Row

SOME = 0.5  # samples: an entry with less behind it has no holder


def corner(value: Tensor, like: Tensor) -> Tensor:
    """The leading entries of a tensor, as many along each axis as the other has."""
    if value.shape == like.shape:
        return value
    return value[tuple(slice(size) for size in like.shape)]


def is_whole(part: Params, like: Params) -> bool:
    """Whether an upload holds every entry of a model."""
    if type(part) is type(like) is Row and part.stack is not None and like.stack is not None:
        return part.stack.form is like.stack.form
    return part.keys() == like.keys() and all(part[name].shape == value.shape for name, value in like.items())


def whole(part: Params, like: Params) -> Params:
    """The model with the entries that the upload holds, and those of the other model elsewhere."""
    if is_whole(part, like):
        return part
    return {name: _filled(part[name], value) if name in part else value for name, value in like.items()}


def named(part: Params, like: Params) -> Params:
    """The upload with the layers that it lacks, cut to its own size where it has none."""
    return part if part.keys() == like.keys() else {name: part.get(name, value) for name, value in like.items()}


def fitted(value: Tensor, like: Tensor) -> Tensor:
    """A layer at another width: the leading entries that both have, and those of the other tensor around them."""
    if value.shape == like.shape:
        return value
    both = value[tuple(slice(size) for size in like.shape)]
    around = [side for gap in _gaps(both, like) for side in (0, gap)]
    inside = F.pad(torch.ones(both.shape, dtype=torch.bool), around)
    return torch.where(inside, F.pad(both, around), like)


def _gaps(part: Tensor, like: Tensor) -> list[int]:
    """What lacks along each axis, the last one first."""
    return [whole - own for whole, own in zip(reversed(like.shape), reversed(part.shape), strict=True)]


def uniform(like: Params, samples: float) -> Params:
    """The samples behind each entry where every upload held everything."""
    return {name: torch.full(value.shape, samples) for name, value in like.items()}


def exchanged(
    centre: Params, mass: Params, out: tuple[Params, float] | None, into: tuple[Params, float] | None
) -> tuple[Params, Params]:
    """A weighted mean over the holders of each entry, and the samples behind it, after one upload left, another came.

    v' = v + (n (u - v) - n_out (u_out - v)) / N' entry by entry, with N' the samples of the entry's holders. An entry
    that nobody holds any more keeps its value.
    """
    values, counts = dict(centre), dict(mass)
    for name, value in centre.items():
        if not value.is_floating_point():
            values[name] = into[0].get(name, value) if into is not None else value
            continue
        step, now = torch.zeros_like(value), counts[name].clone()
        for (part, samples), sign in ((one, sign) for one, sign in ((into, 1.0), (out, -1.0)) if one is not None):
            if name in part:
                held = part[name]
                corner(step, held).add_(held - corner(value, held), alpha=sign * samples)
                corner(now, held).add_(sign * samples)
        counts[name] = now.clamp_min(0.0)
        values[name] = torch.where(now > SOME, value + step / now.clamp_min(SOME), value)
    return values, counts


def mean(centre: Params, parts: Iterable[tuple[Params, float]]) -> Params:
    """The weighted mean of each entry over the uploads that hold it; an entry that none holds stays as it was."""
    values, mass = centre, uniform(centre, 0.0)
    for part in parts:
        values, mass = exchanged(values, mass, None, part)
    return values


def _filled(part: Tensor, like: Tensor) -> Tensor:
    if part.shape == like.shape:
        return part
    value = like.clone()
    corner(value, part).copy_(part)
    return value
