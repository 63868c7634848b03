"""Work cut into legs: which samples belong to which of them."""

from __future__ import annotations

import torch
from torch import Tensor

from potluck import keys
from potluck.learn import Rows


def portion(weight: Tensor, k: Tensor, of: int, key: Tensor | None = None) -> Rows:
    """The k-th of `of` equal shares of the samples that count, in the random order of the key, or as they stand: all
    shares make one epoch, and there is nothing beyond them."""
    capacity = weight.shape[0]
    samples = weight.sum()
    first, end = torch.floor(samples * k / of), torch.floor(samples * (k + 1).clamp_max(of) / of)
    places = first + torch.arange(-(-capacity // of))
    rows = places.clamp_max(capacity - 1).long()
    if key is not None:
        rows = keys.permutation(key, capacity, weight)[rows]
    return Rows(rows, (places < end).to(weight.dtype))
