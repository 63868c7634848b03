"""What the answers of classifiers come to: right answers by class, and the loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from potluck.compiled.jit import CUBE, INT, PLACES, TABLE, kernel
from potluck.compiled.loops import exponential

Array = Any  # a NumPy array
TOP = np.float32(np.inf)
ZERO = np.float32(0.0)


@kernel(INT, INT, CUBE, PLACES, PLACES, TABLE, "float64[:, ::1]", "float64[::1]")
def score(
    begin: int, end: int, out: Array, which: Array, rows: Array, labels: Array, sums: Array, losses: Array
) -> None:
    """Add up the answers of the models from `begin` to `end`.

    K models, C classes: out (K, N, C) are the logits, of which rows[k] count; model k answers client which[k]; labels
    (clients, N). sums (K, 3 C) are right answers, answers and rows by class; losses (K) the summed cross-entropy.
    """
    C = out.shape[2]
    for k in range(begin, end):
        for n in range(rows[k]):
            y, top, said = labels[which[k], n], out[k, n, 0], 0
            for c in range(1, C):
                value = out[k, n, c]
                if value > top or (value != value and top == top):  # what is not a number comes first, as in PyTorch
                    top, said = value, c
            whole = ZERO
            for c in range(C):
                whole += exponential(out[k, n, c] - top)
            if y < 0 or y >= C or not top < TOP:
                losses[k] = np.nan
            if y < 0 or y >= C:
                continue
            losses[k] += np.log(np.float64(whole)) - np.float64(out[k, n, y] - top)
            sums[k, C + said] += 1.0
            sums[k, 2 * C + y] += 1.0
            if said == y:
                sums[k, y] += 1.0
