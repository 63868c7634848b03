"""Rows of several stacks copied to one: for small samples, calls of NumPy take longer than the copies."""

from __future__ import annotations

from typing import Any

import numpy as np

from potluck.compiled.jit import INT, PLACES, exact, pointer

Array = Any


@exact(PLACES, PLACES, INT, INT)
def copy(sources: Array, counts: Array, out: int, room: int) -> None:
    """Copy words of 32 bits from each address to the rows of `out`, which have room for `room` of them."""
    for k in range(len(sources)):
        used = min(counts[k], room)
        x, z = pointer(sources[k]), pointer(out + 4 * room * k)
        for i in range(used):
            z[i] = x[i]
        for i in range(used, room):
            z[i] = np.float32(0.0)
