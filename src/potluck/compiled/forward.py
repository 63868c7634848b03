"""The outputs of dense networks, one client after another: what an evaluation needs."""

from __future__ import annotations

from typing import Any

import numpy as np

from potluck.compiled.jit import CUBE, INT, PLACES, STEPS, kernel, pointer
from potluck.compiled.layers import ZERO, activate, copied
from potluck.compiled.loops import clear
from potluck.compiled.products import PAIR, product, transposed

Array = Any  # a NumPy array
BLOCK = 64  # rows at a time: their features stay in cache while the weights pass


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
