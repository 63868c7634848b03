"""A step from one model towards another, for all its tensors in one call."""

from __future__ import annotations

from typing import Any

import numpy as np

from potluck.compiled.jit import FLAG, INT, PLACES, exact, pointer

Array = Any


@exact(PLACES, INT, PLACES, INT, PLACES, INT, PLACES, "float64", FLAG)
def move(a: Array, i: int, b: Array, j: int, out: Array, k: int, counts: Array, share: float, between: bool) -> None:
    """out_k = a_i + share (b_j - a_i), or without `between` a_i + share b_j: rows of stacks, by their addresses."""
    by = np.float32(share)
    for t in range(len(counts)):
        count = counts[t]
        x, y, z = pointer(a[t] + 4 * count * i), pointer(b[t] + 4 * count * j), pointer(out[t] + 4 * count * k)
        if between:
            for n in range(count):
                z[n] = x[n] + by * (y[n] - x[n])
        else:
            for n in range(count):
                z[n] = x[n] + by * y[n]
