"""The outputs of dense networks, one client after another: what an evaluation needs."""

from __future__ import annotations

from typing import Any

import numpy as np

from potluck.compiled.jit import CUBE, INT, MEMORY, PLACES, ROWS, STEPS, kernel, pointer
from potluck.compiled.layers import ZERO, activate, copied
from potluck.compiled.loops import clear
from potluck.compiled.products import PAIR, product, transposed

Array = Any  # a NumPy array
Memory = Any
BLOCK = 64  # rows at a time: their features stay in cache while the weights pass
NOTHING = 1e-12  # outputs whose spread is below this are all equal


@kernel(INT, INT, CUBE, PLACES, PLACES, PLACES, PLACES, STEPS, CUBE)
def outputs(
    begin: int, end: int, x: Array, which: Array, rows: Array, sizes: Array, acts: Array, given: Array, out: Array
) -> None:
    """Write the outputs of the models from `begin` to `end`.

    K models on samples of clients, of at most N samples, L layers: x (clients, N, F); model k answers rows[k] of client
    which[k]; sizes (L + 1), acts (L), out (K, N, C); the addresses of weights and biases are `given` (K, L, 2).
    """
    L, N, F = len(acts), x.shape[1], x.shape[2]
    most, C = sizes[1:].max(), sizes[L]
    turned, room = np.zeros(L, np.int64), 16
    for i in range(L):
        turned[i] = room
        room += (sizes[i] * sizes[i + 1] + 15) // 16 * 16
    near, far, zeros = room, room + BLOCK * most, room + 2 * BLOCK * most
    memory = np.empty(zeros + most + 16, np.float32)
    base = (memory.ctypes.data + 63) // 64 * 64
    m = pointer(base)
    clear(m, zeros, most)
    for k in range(begin, end):
        for i in range(L):
            if k == begin or given[k, i, 0] != given[k - 1, i, 0]:  # clients that share a model share its transpose
                J, M = sizes[i], sizes[i + 1]
                for n in range(0, M, PAIR):
                    wide = min(PAIR, M - n)
                    transposed(m, turned[i] + n * J, wide, (given[k, i, 0] - base) // 4 + n * J, J, wide, J)
        for at in range(0, rows[k], BLOCK):
            n = min(BLOCK, rows[k] - at)
            source = (x.ctypes.data + 4 * F * (N * which[k] + at) - base) // 4
            for i in range(L):
                J, M = sizes[i], sizes[i + 1]
                to = near if i % 2 == 0 else far
                bias = (given[k, i, 1] - base) // 4 if given[k, i, 1] else zeros
                for c in range(0, M, PAIR):
                    wide, right = min(PAIR, M - c), turned[i] + c * J
                    product(m, to + c, M, bias + c, 0, source, 0, 1, J, right, wide, n, wide, 1, J)
                activate(acts[i], m, to, n * M)
                source = to
            copied(m, (out.ctypes.data + 4 * C * (N * k + at) - base) // 4, source, n * C)
    memory[0] = ZERO  # its last use: it must live until here


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
