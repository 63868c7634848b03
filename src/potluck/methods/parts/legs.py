"""Work cut into legs: which samples belong to which of them."""

from __future__ import annotations

import torch
from torch import Tensor

from potluck import keys
from potluck.fleet import Data
from potluck.learn import take


def portion(data: Data, key: Tensor, k: Tensor, of: int) -> Data:
    """The k-th of `of` equal shares of the samples in the random order of the key: all shares make one epoch, and
    there is nothing beyond them."""
    capacity = data.weight.shape[0]
    samples = data.weight.sum()
    first, end = torch.floor(samples * k / of), torch.floor(samples * (k + 1).clamp_max(of) / of)
    places = first + torch.arange(-(-capacity // of))
    rows = keys.permutation(key, capacity, data.weight)[places.clamp_max(capacity - 1).long()]
    return take(data, rows, (places < end).to(data.weight.dtype))
