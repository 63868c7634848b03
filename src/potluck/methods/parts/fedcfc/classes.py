"""Classes that come one after another: how many there are by now, and which of a client's rows are at hand."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from potluck import keys
from potluck.fleet import Data


def so_far(first: int, known: bool, rounds_per_class: int, all_: int, done: int) -> int:
    """How many classes there are after `done` rounds; 0 where nothing is scheduled.

    The `first` ones have rounds of their own, unless they are `known` already: pre-trained.
    """
    return min(all_, first + known + done // rounds_per_class) if first else 0


def present(data: Data, classes: int, first: int, replay: float, key: Tensor) -> Data:
    """The rows at hand once `classes` classes exist: all of the newest, the share `replay` of the older ones.

    Until there is a class beyond the `first` ones, all of theirs; with `classes` 0 there is no schedule.
    """
    if not classes:
        return data
    newest = torch.ones_like(data.weight) if classes <= first else (data.y == classes - 1).float()
    again = keys.bernoulli(keys.fold(key, "replay"), torch.full(data.y.shape, replay))
    return replace(data, weight=data.weight * torch.maximum(newest, again) * (data.y < classes))
