"""Which samples belong to which leg of a task."""

from __future__ import annotations

import torch
from torch import Tensor

from potluck import keys
from potluck.learn import Rows


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
