"""The weighted sum of many models: each is read once, and the sum stays in cache meanwhile."""

from __future__ import annotations

from typing import Any

from potluck.compiled.jit import FLOAT, INT, MEMORY, PLACES, ROW, TABLE, pointer, pointwise

Array = Any  # within a kernel: an array
Memory = Any
BLOCK = 4096  # numbers of the sum at a time: 16 kB


@pointwise(MEMORY, INT, INT, INT, FLOAT, INT, FLOAT)
def _two(m: Memory, to: int, count: int, first: int, by_first: Any, second: int, by_second: Any) -> None:
    for i in range(count):
        m[to + i] = (m[to + i] + by_first * m[first + i]) + by_second * m[second + i]


@pointwise(MEMORY, INT, INT, INT, FLOAT)
def _one(m: Memory, to: int, count: int, source: int, by: Any) -> None:
    for i in range(count):
        m[to + i] += by * m[source + i]


@pointwise(MEMORY, INT, INT, INT, FLOAT)
def _begin(m: Memory, to: int, count: int, source: int, by: Any) -> None:
    for i in range(count):
        m[to + i] = by * m[source + i]


@pointwise(INT, INT, TABLE, PLACES, PLACES, ROW)
def weighted(begin: int, end: int, given: Array, sizes: Array, out: Array, share: Array) -> None:
    """Write the sums of the blocks from `begin` to `end`, in the order of the models.

    T tensors of K models: their addresses are `given` (T, K), that of each sum is `out` (T); sizes (T), share (K).
    """
    T, K = given.shape
    before = 0  # blocks of the tensors so far
    for t in range(T):
        blocks = (sizes[t] + BLOCK - 1) // BLOCK
        m = pointer(out[t])
        for block in range(max(begin - before, 0), min(end - before, blocks)):
            at = block * BLOCK
            count = min(BLOCK, sizes[t] - at)
            _begin(m, at, count, (given[t, 0] - out[t]) // 4 + at, share[0])
            for k in range(1, K - 1, 2):
                first, second = (given[t, k] - out[t]) // 4 + at, (given[t, k + 1] - out[t]) // 4 + at
                _two(m, at, count, first, share[k], second, share[k + 1])
            if K % 2 == 0:
                _one(m, at, count, (given[t, K - 1] - out[t]) // 4 + at, share[K - 1])
        before += blocks
