"""Samples of many clients: drawn, gathered, scaled, standardised and masked, a few clients at a time.

Every operation rounds as NumPy's in `data/standardise.py` does, and sums run in the same order: the bits are the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from potluck.compiled.jit import FLAG, FLOAT, INT, PLACES, ROWS, TABLE, exact, octets, pointer
from potluck.compiled.orders import GOLDEN, mix

Array = Any
WORDS, DOUBLES = "uint64[::1]", "float64[:, ::1]"
LARGEST = np.float32(np.finfo(np.float32).max)


@exact(WORDS, INT, INT, PLACES, TABLE)
def draw(keys: Array, count: int, half: int, pool: Array, out: Array) -> None:
    """`data.draw.distinct` of each key, as numbers of the pool."""
    shift, size = np.uint64(half), np.uint64(len(pool))
    mask = (np.uint64(1) << shift) - np.uint64(1)
    for k in range(len(keys)):
        for j in range(count):
            value = np.uint64(j)
            while True:
                left, right = value >> shift, value & mask
                for step in range(1, 5):
                    left, right = right, left ^ (mix((keys[k] ^ right) + np.uint64(step) * GOLDEN) & mask)
                value = (left << shift) | right
                if value < size:
                    break
            out[k, j] = pool[np.int64(value)]


@exact(INT, INT, INT, FLAG, FLOAT, INT, INT, TABLE, PLACES, INT)
def gather(
    begin: int, end: int, source: int, bytewise: bool, factor: float, size: int, colours: int, rows: Array,
    counts: Array, out: int,
) -> None:  # fmt: skip
    """Copy the rows of each client to `out` (clients, capacity, size), and zeros behind them.

    Bytes are multiplied by `factor`. Samples of several colours are stored with the colour last, and get it first.
    """
    capacity, area = rows.shape[1], size // colours
    for k in range(begin, end):
        used = counts[k]
        for j in range(used):
            z = pointer(out + 4 * size * (k * capacity + j))
            if bytewise:
                b = octets(source + size * rows[k, j])
                if colours == 1:
                    for i in range(size):
                        z[i] = np.float32(b[i]) * factor
                else:
                    for c in range(colours):
                        for i in range(area):
                            z[c * area + i] = np.float32(b[i * colours + c]) * factor
            else:
                x = pointer(source + 4 * size * rows[k, j])
                if colours == 1:
                    for i in range(size):
                        z[i] = x[i]
                else:
                    for c in range(colours):
                        for i in range(area):
                            z[c * area + i] = x[i * colours + c]
        z = pointer(out + 4 * size * (k * capacity + used))
        for i in range((capacity - used) * size):
            z[i] = np.float32(0.0)


@exact(PLACES, INT, INT, TABLE, PLACES, PLACES, INT, FLAG, FLAG, ROWS, DOUBLES, TABLE)
def sums(
    which: Array, x: int, size: int, rows: Array, counts: Array, lengths: Array, channels: int, missing: bool,
    squared: bool, around: Array, total: Array, valid: Array,
) -> None:  # fmt: skip
    """For each place of a sample the sum of some clients' values, or of their squared distances to `around`.

    `valid` counts the values. Those that are missing, and those behind the end of a series, do not count.
    """
    capacity = rows.shape[1]
    for p in range(len(which)):
        k = which[p]
        for i in range(size):
            total[p, i] = 0.0
            valid[p, i] = 0
        for j in range(counts[k]):
            z = pointer(x + 4 * size * (k * capacity + j))
            used = min(max(lengths[rows[k, j]], 0) * channels, size) if len(lengths) else size
            if squared and missing:
                for i in range(used):
                    distance = z[i] - around[p, i]
                    distance = distance * distance
                    if distance == distance:
                        total[p, i] += np.float64(distance)
            elif squared:
                for i in range(used):
                    distance = z[i] - around[p, i]
                    total[p, i] += np.float64(distance * distance)
            elif missing:
                for i in range(used):
                    if z[i] == z[i]:
                        total[p, i] += np.float64(z[i])
                        valid[p, i] += 1
            else:
                for i in range(used):
                    total[p, i] += np.float64(z[i])
                if len(lengths):
                    for i in range(used):
                        valid[p, i] += 1


@exact(INT, INT, INT, INT, TABLE, PLACES, PLACES, INT, FLAG, FLAG, ROWS, ROWS)
def standardise(
    begin: int, end: int, x: int, size: int, rows: Array, counts: Array, lengths: Array, channels: int, missing: bool,
    shifted: bool, mean: Array, factor: Array,
) -> None:  # fmt: skip
    """Apply mean and factor of each client, or the only ones. Missing values and those behind an end become 0."""
    capacity = rows.shape[1]
    for k in range(begin, end):
        own = k - begin if len(mean) > 1 else 0
        for j in range(counts[k]):
            z = pointer(x + 4 * size * (k * capacity + j))
            if shifted:
                for i in range(size):
                    z[i] = (z[i] - mean[own, i]) * factor[own, i]
            if missing:
                for i in range(size):
                    if z[i] != z[i]:
                        z[i] = np.float32(0.0)
                    elif z[i] > LARGEST:
                        z[i] = LARGEST
                    elif z[i] < -LARGEST:
                        z[i] = -LARGEST
            if len(lengths):
                for i in range(min(max(lengths[rows[k, j]], 0) * channels, size), size):
                    z[i] = np.float32(0.0)
