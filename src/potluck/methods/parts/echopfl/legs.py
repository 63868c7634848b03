"""Between the legs of a task: which samples belong to which, and what a client at work does with a broadcast."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from potluck import keys
from potluck._whole import whole
from potluck.learn import Rows
from potluck.rows import rebased as on_base
from potluck.tensors import each

AnyCarry = TypeVar("AnyCarry", bound=Any)  # of EchoPFL, or of a composed method


def portion(weight: Tensor, k: Tensor, of: int, key: Tensor | None = None) -> Rows:
    """The k-th of `of` equal shares of the samples, in the random order of the key or as they are stored.

    All shares together are one epoch. A share beyond them is empty.
    """
    capacity = weight.shape[0]
    samples = weight.sum()
    first, end = torch.floor(samples * k / of), torch.floor(samples * (k + 1).clamp_max(of) / of)
    at = first + torch.arange(-(-capacity // of))
    rows = at.clamp_max(capacity - 1).long()
    if key is not None:
        rows = keys.permutation(key, capacity, weight)[rows]
    return Rows(rows, (at < end).to(weight.dtype), 1.0 / of)


def rebased(carry: AnyCarry, note: Any, restart: bool = False) -> AnyCarry:
    """w <- v_new + (w - v_base), or v_new alone; an older note, which came late, changes nothing.

    The carry has `weights`, `base`, `version` and `last_layer`, the note `weights`, `version` and `last_layer`.
    """
    newer = note.version[0] > carry.version[0]
    version = torch.where(newer, note.version, carry.version)
    last_layer = carry.last_layer and note.last_layer
    if all(
        value.is_floating_point() for value in carry.weights.values()
    ):  # a stack of clients in one pass, if it is one
        models = [model[name] for model in (note.weights, carry.weights, carry.base) for name in note.weights]
        found = whole(lambda newer, *stacks: on_base(newer, stacks, restart), newer, *models)
        if found is not None:
            parts = found[: len(note.weights)], found[len(note.weights) :]
            weights, base = (dict(zip(note.weights, part, strict=True)) for part in parts)
            return replace(carry, weights=weights, base=base, version=version, last_layer=last_layer)

    def moved(new: Tensor, now: Tensor, base: Tensor) -> Tensor:
        if not now.is_floating_point():
            return now
        return torch.where(newer, new if restart else now + (new - base), now)

    weights = each(moved, note.weights, carry.weights, carry.base)
    base = each(lambda new, old: torch.where(newer, new, old), note.weights, carry.base)
    return replace(carry, weights=weights, base=base, version=version, last_layer=last_layer)
