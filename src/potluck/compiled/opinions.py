"""What dense networks say of samples, as features by samples: weights are read as they are, and never turned.

Samples go through in panels, of which a row is two vectors. What a sample gets depends on no other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from potluck.compiled.jit import CUBE, INT, MEMORY, PLACES, ROWS, STEPS, kernel, pointer
from potluck.compiled.layers import ZERO, activate
from potluck.compiled.loops import clear
from potluck.compiled.products import PAIR, product, transposed

Array = Any  # a NumPy array
Memory = Any
NOTHING = 1e-12  # outputs whose spread is below this are all equal


@kernel(CUBE, ROWS)
def opinions(out: Array, rows: Array) -> None:
    """Write each model's outputs (N, C) as one row of length 1, once the mean over C is gone; zeros stay zeros."""
    K, N, C = out.shape
    for k in range(K):
        total = 0.0
        for n in range(N):
            mean = ZERO
            for c in range(C):
                mean += out[k, n, c]
            mean /= np.float32(C)
            for c in range(C):
                value = out[k, n, c] - mean
                rows[k, n * C + c] = value
                total += float(value) * float(value)
        length = np.sqrt(total)
        some = length > NOTHING * np.sqrt(float(N * C))  # false for what is not a number, too
        for i in range(N * C):
            rows[k, i] = rows[k, i] * np.float32(1.0 / length) if some else ZERO


@kernel(MEMORY, INT, INT, INT, INT, STEPS, PLACES, PLACES)
def _through(m: Memory, base: int, far: int, panel: int, k: int, given: Array, sizes: Array, acts: Array) -> int:
    """The place of a model's outputs (C, PAIR) for a panel of samples (F, PAIR).

    Features stand in panels, too. So weights are read as they are, and what a sample gets depends on no other.
    """
    source = panel
    for i in range(len(acts)):
        J, M = sizes[i], sizes[i + 1]
        to = 0 if i % 2 == 0 else far
        bias = (given[k, i, 1] - base) // 4
        for row in range(M):
            value = m[bias + row] if given[k, i, 1] else ZERO
            for column in range(PAIR):
                m[to + row * PAIR + column] = value
        product(m, to, PAIR, to, PAIR, (given[k, i, 0] - base) // 4, 0, 1, J, source, PAIR, M, PAIR, 1, J)
        activate(acts[i], m, to, M * PAIR)
        source = to
    return source


@kernel(CUBE, STEPS, PLACES, PLACES, CUBE)
def answers(panels: Array, given: Array, sizes: Array, acts: Array, out: Array) -> None:
    """Write the outputs (K, N, C) of K models on the same N samples, which stand in panels (N / PAIR, F, PAIR)."""
    K, N, C = out.shape
    F = panels.shape[1]
    far = sizes[1:].max() * PAIR
    memory = np.empty(2 * far + 16, np.float32)
    base = (memory.ctypes.data + 63) // 64 * 64
    m = pointer(base)
    for k in range(K):
        for panel in range(panels.shape[0]):
            begin = panel * PAIR
            place = _through(m, base, far, (panels.ctypes.data + 4 * F * begin - base) // 4, k, given, sizes, acts)
            for n in range(begin, min(begin + PAIR, N)):
                for c in range(C):
                    out[k, n, c] = m[place + c * PAIR + n - begin]
    memory[0] = ZERO


@kernel(INT, INT, CUBE, PLACES, PLACES, STEPS, CUBE)
def own(begin: int, end: int, x: Array, sizes: Array, acts: Array, given: Array, out: Array) -> None:
    """Write the outputs (K, N, C) of the models from `begin` to `end`, each on its own samples x (K, N, F)."""
    N, F, C = x.shape[1], x.shape[2], out.shape[2]
    far = sizes[1:].max() * PAIR
    memory = np.empty(2 * far + F * PAIR + 16, np.float32)
    base = (memory.ctypes.data + 63) // 64 * 64
    m = pointer(base)
    clear(m, 2 * far, F * PAIR)
    for k in range(begin, end):
        for at in range(0, N, PAIR):
            wide = min(PAIR, N - at)
            transposed(m, 2 * far, PAIR, (x.ctypes.data + 4 * F * (N * k + at) - base) // 4, F, wide, F)
            place = _through(m, base, far, 2 * far, k, given, sizes, acts)
            for n in range(wide):
                for c in range(C):
                    out[k, at + n, c] = m[place + c * PAIR + n]
    memory[0] = ZERO
