"""Random figures as pure functions of a number: the same for one client or for a million at once."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from potluck import keys

_STANDARD = NormalDist()
_EDGE = 1e-9  # six sigma: a draw of exactly 0 must not make a transfer free


def uniform(numbers: ArrayLike, *parts: str | NDArray[np.int64]) -> NDArray[np.float64]:
    """A float in [0, 1) for each number, another one for other parts; array parts go with the numbers."""
    key = torch.from_numpy(np.array(numbers, dtype=np.int64))
    mixed = keys.fold(key, *(part if isinstance(part, str) else torch.from_numpy(part) for part in parts))
    top: NDArray[np.float64] = (mixed.numpy().view(np.uint64) >> np.uint64(11)).astype(np.float64)
    return top * 2.0**-53


def log_normal(u: float, sigma: float) -> float:
    """The factor with mean 1 and log-deviation sigma that belongs to the uniform draw u in [0, 1)."""
    if sigma == 0.0:
        return 1.0
    z = _STANDARD.inv_cdf(min(max(u, _EDGE), 1.0 - _EDGE))
    return math.exp(sigma * z - sigma * sigma / 2.0)
