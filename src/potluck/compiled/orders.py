"""The order in which each client visits its samples, as `potluck.keys.permutation` draws it: the same integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from potluck.compiled.jit import CUBE, INT, PLACES, ROWS, STEPS, inlined, kernel

Array = Any
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1, MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
S27, S30, S31 = np.uint64(27), np.uint64(30), np.uint64(31)
COUNTED = 256  # samples: up to so many, to count for each the smaller numbers is faster than to sort


@kernel(PLACES, PLACES)
def ranked(numbers: Array, order: Array) -> bool:
    """Put the order of the numbers in `order`; False where two are equal."""
    total, N = np.int64(0), len(numbers)
    for i in range(N):
        mine = numbers[i]
        rank = np.int64(0)
        for j in range(N):
            rank += np.int64(numbers[j] < mine)
        order[rank] = i
        total += rank
    return bool(total == N * (N - 1) // 2)


@inlined("uint64")
def mix(z: Any) -> Any:
    """The finaliser of SplitMix64, as `potluck.keys` has it."""
    z = (z ^ (z >> S30)) * MIX_1
    z = (z ^ (z >> S27)) * MIX_2
    return z ^ (z >> S31)


@kernel(INT, INT, PLACES, PLACES, ROWS, STEPS, CUBE)
def draw(begin: int, end: int, keys: Array, epochs: Array, real: Array, rows: Array, counts: Array) -> None:
    """For the clients from `begin` to `end`: all samples of each epoch in a fresh order, those that count first.

    K clients, E epochs, N samples: keys (K), numbers of epochs (E) to fold them with, 0/1 weights `real` (K, N), rows
    and counts (K, E, N or more).
    """
    E, N = len(epochs), real.shape[1]
    numbers, order = np.empty(N, np.int64), np.empty(N, np.int64)
    for k in range(begin, end):
        for e in range(E):
            word = mix(np.uint64(keys[k] ^ epochs[e]) + GOLDEN)
            for i in range(N):
                word += GOLDEN
                number = np.int64(mix(word)) >> 2
                numbers[i] = number if real[k, i] > 0 else number + (1 << 62)
            if N > COUNTED or not ranked(numbers, order):
                order[:] = np.argsort(numbers, kind="mergesort")
            for i in range(N):
                rows[k, e, i], counts[k, e, i] = order[i], real[k, order[i]]
            for i in range(N, rows.shape[2]):
                rows[k, e, i], counts[k, e, i] = 0, np.float32(0.0)
