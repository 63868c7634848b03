"""Classes that arrive one after another: how many exist by now, and which of a client's samples it still has."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from potluck import keys
from potluck.fleet import Data
from potluck.methods.parts import checks


@dataclass(frozen=True)
class Classes:
    """Class-incremental data (section 5.4)."""

    first: int = 0  # classes that exist at the start; 0: all classes from the start
    every: int = 10  # rounds until the next class arrives
    replay: float = 0.1  # share of the samples of older classes that a client still has

    def __post_init__(self) -> None:
        checks.at_least(self, "first", 0)
        checks.at_least(self, "every", 1)
        checks.within(self, "replay", 0.0, 1.0)


def so_far(schedule: Classes, known: bool, all_: int, done: int) -> int:
    """How many classes exist after `done` rounds; 0 without a schedule.

    The first classes get rounds for themselves, unless they are `known` from pre-training.
    """
    return min(all_, schedule.first + known + done // schedule.every) if schedule.first else 0


def present(data: Data, classes: int, schedule: Classes, key: Tensor) -> Data:
    """The samples once `classes` classes exist: all of the newest class, the share `replay` of the older ones.

    Until a class beyond the first ones exists, all samples of those. `classes` is 0 without a schedule.
    """
    if not classes:
        return data
    newest = torch.ones_like(data.weight) if classes <= schedule.first else (data.y == classes - 1).float()
    again = keys.bernoulli(keys.fold(key, "replay"), torch.full(data.y.shape, schedule.replay))
    return replace(data, weight=data.weight * torch.maximum(newest, again) * (data.y < classes))
