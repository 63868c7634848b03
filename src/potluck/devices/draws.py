"""Random figures as pure functions of a number: the same for one client or for a million at once."""

from __future__ import annotations

import math
import statistics
from functools import lru_cache
from itertools import repeat
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from potluck import keys

Figure = TypeVar("Figure", float, NDArray[np.float64])  # of one client, or of many
# `statistics.NormalDist().inv_cdf` without its checks, which take longer than it does.
_inverse: Any = statistics._normal_dist_inv_cdf  # type: ignore[attr-defined]
_EDGE = 1e-9  # six sigma: a draw of exactly 0 must not make a transfer free
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_ALL = 2**64 - 1


def uniform(numbers: ArrayLike, *parts: str | NDArray[np.int64]) -> NDArray[np.float64]:
    """Draw a float in [0, 1) for each number; other parts give other draws; array parts go with the numbers.

    The bits are those of `keys.fold`. NumPy is used because the engine asks for one client at a time, where a
    tensor's overhead would be most of the work.
    """
    mixed = np.atleast_1d(np.asarray(numbers, dtype=np.int64)).view(np.uint64)
    for part in parts:
        mixed = _mix((mixed ^ (_step(part) if isinstance(part, str) else part.view(np.uint64))) + _GOLDEN)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def uniform_one(number: int, part: str) -> float:
    """Draw `uniform` of one number with the same bits: for one client an array's overhead would be most of the work."""
    z = ((number & _ALL ^ int(_step(part))) + int(_GOLDEN)) & _ALL
    z = ((z ^ (z >> 30)) * int(_MIX_1)) & _ALL
    z = ((z ^ (z >> 27)) * int(_MIX_2)) & _ALL
    return ((z ^ (z >> 31)) >> 11) * 2.0**-53


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))


@lru_cache(maxsize=64)
def _step(part: str) -> np.uint64:
    return np.uint64(keys.number(part) & _ALL)


def log_normal(u: Figure, sigma: float) -> Figure:
    """Return the log-normal factor with mean 1 and log-deviation sigma for each uniform draw u in [0, 1)."""
    if isinstance(u, np.ndarray):  # one by one: NumPy's own functions give other last bits
        if sigma == 0.0:
            return np.ones(len(u))
        less = sigma * sigma / 2.0
        within = np.minimum(np.maximum(u, _EDGE), 1.0 - _EDGE).tolist()
        return np.array([math.exp(sigma * z - less) for z in map(_inverse, within, repeat(0.0), repeat(1.0))])
    return _factor(u, sigma)


def _factor(u: float, sigma: float) -> float:
    if sigma == 0.0:
        return 1.0
    z = _inverse(min(max(u, _EDGE), 1.0 - _EDGE), 0.0, 1.0)
    return math.exp(sigma * z - sigma * sigma / 2.0)
