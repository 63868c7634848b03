"""What a device keeps for its access point: never more than it can store, the oldest giving way.

Mo et al. (Centaur), sections 4.2 and 6.1. Samples chosen while the access point is away wait on the device, each with
the number of the pair of rounds in which it was chosen last.
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
    left: Tensor  # per sample of the device: the pair in which it was chosen, 0 where it does not wait
    stored: Tensor  # samples held for the access point, sent or not


def sample_bytes(data: Data) -> int:
    return math.prod(data.x.shape[1:]) * data.x.element_size()


def hand_over(
    data: Data, waiting: Tensor, chosen: Tensor, pair: Tensor, here: Tensor, room: float, key: Tensor
) -> HandedOver:
    """The chosen join those waiting; as many as fit into `room` bytes stay, and go if the access point is `here`.

    Of samples chosen in the same pair chance decides which give way.
    """
    nothing = data.weight * 0
    capacity = data.weight.shape[0]
    marked = torch.maximum(_widened(waiting, capacity), chosen * pair)
    fits = int(room // sample_bytes(data))
    place = newest(marked, max(1, min(capacity, fits)), key)
    stored = (marked[place] > 0).to(marked.dtype) * float(fits > 0)
    left = nothing.scatter(0, place, marked[place] * stored * (1.0 - here))
    return HandedOver(take(data, place, stored * here), left, stored.sum())


def _widened(waiting: Tensor, capacity: int) -> Tensor:
    """A device's marks in a stack of another width: what lies beyond its own samples is empty."""
    return torch.cat([waiting, waiting.new_zeros(max(0, capacity - len(waiting)))])[:capacity]
