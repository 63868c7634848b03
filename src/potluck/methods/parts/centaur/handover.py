"""What a device keeps for its access point: never more than it can store, the oldest giving way.

Mo et al. (Centaur), sections 4.2 and 6.1. Samples chosen while the access point is away wait on the device, each with
the number of the pair of rounds in which it was chosen last. Those sent in vain, because the access point was gone
before it could train, join them again.
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
class HandedOver:
    parcel: Data  # for the access point; weight 0 where there is nothing
    left: Tensor  # per sample of the device: the pair in which it was chosen, negative once sent, 0 where it was not
    stored: Tensor  # samples held for the access point, sent or not


def sample_bytes(data: Data) -> int:
    return math.prod(data.x.shape[1:]) * data.x.element_size()


def waiting(stamps: Tensor, again: Tensor) -> Tensor:
    """The pairs in which the samples that wait were chosen; `again`: also of those that were sent the last time."""
    return torch.where(again > 0, stamps.abs(), stamps.clamp_min(0.0))


def hand_over(
    data: Data, waits: Tensor, chosen: Tensor, pair: Tensor, here: Tensor, room: float, key: Tensor
) -> HandedOver:
    """The chosen join those waiting; as many as fit into `room` bytes stay, and go if the access point is `here`.

    Of samples chosen in the same pair chance decides which give way.
    """
    nothing = data.weight * 0
    capacity = data.weight.shape[0]
    marked = torch.maximum(_widened(waits, capacity), chosen * pair)
    fits = int(room // sample_bytes(data))
    place = newest(marked, max(1, min(capacity, fits)), key)
    stored = (marked[place] > 0).to(marked.dtype) * float(fits > 0)
    left = nothing.scatter(0, place, marked[place] * stored * (1.0 - 2.0 * here))
    return HandedOver(take(data, place, stored * here), left, stored.sum())


def _widened(marks: Tensor, capacity: int) -> Tensor:
    """A device's marks in a stack of another width: what lies beyond its own samples is empty."""
    return torch.cat([marks, marks.new_zeros(max(0, capacity - len(marks)))])[:capacity]
