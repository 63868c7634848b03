"""What a device stores for its access point: never more than it has room for, and the oldest samples go first.

Mo et al. (Centaur), sections 4.2 and 6.1. Samples chosen while the access point is away wait on the device, each with
the number of the pair of rounds in which it was last chosen. Samples that were sent in vain, because the access point
left before it could train, wait again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.fleet import Data
from potluck.learn import take
from potluck.methods.parts.selection import newest


@dataclass(frozen=True)
class Handover:
    """The conditions under which a device hands samples over in a round."""

    pair: Tensor  # number of the pair of rounds, from 1
    here: Tensor  # 1 where the access point is there to take samples
    again: Tensor  # 1 where the samples it took last were in vain: they wait once more
    storage: float  # bytes for samples to hand over

    @staticmethod
    def of(pair: int, here: bool, again: bool, storage: float) -> Handover:
        return Handover(torch.tensor(pair + 1.0), torch.tensor(float(here)), torch.tensor(float(again)), storage)


@dataclass(frozen=True)
class HandedOver:
    """What a device handed over, and what it still has for its access point."""

    parcel: Data  # for the access point; weight 0 is padding
    left: Tensor  # per sample of the device: the pair in which it was chosen, negative once sent, 0 if never chosen
    stored: Tensor  # number of samples stored for the access point, sent or not


def sample_bytes(data: Data) -> int:
    return math.prod(data.x.shape[1:]) * data.x.element_size()


def hand_over(data: Data, stamps: Tensor, chosen: Tensor, how: Handover, key: Tensor) -> HandedOver:
    """Add the chosen samples to the waiting ones, keep what there is room for, and send it if the access point is here.

    `stamps` is what `HandedOver.left` was after the last round. Of samples chosen in the same pair, a random draw
    decides which ones stay.
    """
    capacity = data.weight.shape[0]
    waits = torch.where(how.again > 0, stamps.abs(), stamps.clamp_min(0.0))
    marked = torch.maximum(widened(waits, capacity), chosen * how.pair)
    fits = int(how.storage // sample_bytes(data))
    rows = newest(marked, max(1, min(capacity, fits)), key)
    stored = (marked[rows] > 0).to(marked.dtype) * float(fits > 0)
    left = (data.weight * 0).scatter(0, rows, marked[rows] * stored * (1.0 - 2.0 * how.here))
    return HandedOver(take(data, rows, stored * how.here), left, stored.sum())


def widened(marks: Tensor, capacity: int) -> Tensor:
    """What a device keeps for each sample, in a stack of another width: 0 in rows beyond its own samples."""
    return torch.cat([marks, marks.new_zeros(max(0, capacity - len(marks)))])[:capacity]
