"""How far two models are apart, over all their tensors in one call."""

from __future__ import annotations

from typing import Any

import numpy as np

from potluck.compiled.jit import PLACES, kernel, pointer

Array = Any
PART = 1024  # numbers whose sum has 32 bits; the sum of the parts has 64


@kernel(PLACES, PLACES, PLACES)
def l1(a: Array, b: Array, counts: Array) -> float:
    """The sum of |a - b| over tensors with these addresses and counts."""
    total = 0.0
    for t in range(len(counts)):
        x, y = pointer(a[t]), pointer(b[t])
        for begin in range(0, counts[t], PART):
            part = np.float32(0.0)
            for i in range(begin, min(counts[t], begin + PART)):
                part += abs(x[i] - y[i])
            total += float(part)
    return total
