"""Functions of each number, and of rows of numbers, that vectorise well."""

from __future__ import annotations

from typing import Any

import numpy as np

from potluck.compiled.jit import FLOAT, INT, MEMORY, ROW, as_float, inlined, kernel, pointwise
from potluck.compiled.vectors import WIDTH, load, plus, store

Array = Any  # within a kernel: a float32 array
Memory = Any  # within a kernel: scratch memory of float32
SOFTMAX, HINGE, HUBER = 0, 1, 2


@kernel(MEMORY, INT, INT, INT, INT)
def copies(memory: Memory, to: int, row: int, width: int, count: int) -> None:
    """Write a row so many times, one after another."""
    for n in range(0, width, WIDTH):
        wide = min(WIDTH, width - n)
        value = load(memory, row + n, wide)
        for i in range(count):
            store(memory, to + i * width + n, wide, value)


@kernel(MEMORY, INT, INT, INT, INT, INT)
def add_rows(memory: Memory, to: int, rows: int, apart: int, width: int, count: int) -> None:
    """Add all rows to one."""
    for n in range(0, width, WIDTH):
        wide = min(WIDTH, width - n)
        total = load(memory, to + n, wide)
        for i in range(count):
            total = plus(total, load(memory, rows + i * apart + n, wide))
        store(memory, to + n, wide, total)


@kernel(MEMORY, INT, INT)
def clear(memory: Memory, at: int, count: int) -> None:
    for i in range(count):
        memory[at + i] = np.float32(0.0)


@kernel(MEMORY, INT, INT, INT, INT, INT)
def transpose(memory: Memory, to: int, matrix: int, apart: int, M: int, N: int) -> None:
    """Write (M, N), whose rows are so far apart, as (N, M)."""
    for n in range(N):
        for m in range(M):
            memory[to + n * M + m] = memory[matrix + m * apart + n]


@inlined(FLOAT)
def exponential(value: Any) -> Any:
    """e to the power of a value, to 3e-7 of it: 2^n by its bits, the rest by a polynomial of degree 6.

    Values below -87 give 1e-38, and values above 88 give 1.6e38.
    """
    x = min(np.float32(88.0), max(np.float32(-87.0), value))
    whole = np.floor(x * np.float32(1.4426950408889634) + np.float32(0.5))
    r = x - whole * np.float32(0.693359375)
    r -= whole * np.float32(-2.12194440e-4)
    p = np.float32(1.0 / 720.0)
    p = p * r + np.float32(1.0 / 120.0)
    p = p * r + np.float32(1.0 / 24.0)
    p = p * r + np.float32(1.0 / 6.0)
    p = p * r + np.float32(0.5)
    p = p * r + np.float32(1.0)
    p = p * r + np.float32(1.0)
    return p * as_float(np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)))


@inlined(FLOAT)
def tanh_of(v: Any) -> Any:
    """tanh of a value, to 2e-7 of it, from e^(-2|x|)."""
    size = min(np.float32(20.0), abs(v))
    x = np.float32(-2.0) * size
    whole = np.floor(x * np.float32(1.4426950408889634) + np.float32(0.5))
    r = x - whole * np.float32(0.693359375)
    r -= whole * np.float32(-2.12194440e-4)
    p = np.float32(1.0 / 5040.0)
    p = p * r + np.float32(1.0 / 720.0)
    p = p * r + np.float32(1.0 / 120.0)
    p = p * r + np.float32(1.0 / 24.0)
    p = p * r + np.float32(1.0 / 6.0)
    p = p * r + np.float32(0.5)
    p = p * r + np.float32(1.0)
    # tanh = (1 - e) / (1 + e); 1 - e without cancellation: (1 - 2^n) - 2^n (e^r - 1)
    two = as_float(np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)))
    less = (np.float32(1.0) - two) - two * (p * r)
    out = less / (np.float32(2.0) - less)
    out = np.copysign(out, v)
    return out if v == v else v


@pointwise(MEMORY, INT, INT)
def exps(memory: Memory, at: int, count: int) -> None:
    """e to the power of each value, in place."""
    for i in range(count):
        memory[at + i] = exponential(memory[at + i])


@pointwise(MEMORY, INT, INT)
def tanhs(memory: Memory, at: int, count: int) -> None:
    """tanh of each value, in place."""
    for i in range(count):
        memory[at + i] = tanh_of(memory[at + i])


@kernel(MEMORY, INT, INT, INT)
def softmaxes(memory: Memory, z: int, rows: int, classes: int) -> None:
    """The softmax of each row, in place; one call of the exponential for all of them."""
    for row in range(rows):
        at = z + row * classes
        top = memory[at]
        for o in range(1, classes):
            top = max(top, memory[at + o])
        for o in range(classes):
            memory[at + o] -= top
    exps(memory, z, rows * classes)
    for row in range(rows):
        at = z + row * classes
        total = np.float32(0.0)
        for o in range(classes):
            total += memory[at + o]
        by = np.float32(1.0) / total
        for o in range(classes):
            memory[at + o] *= by


@kernel(INT, MEMORY, INT, INT, INT, ROW)
def slope(loss: int, memory: Memory, z: int, classes: int, label: int, values: Array) -> None:
    """Replace a sample's outputs by the derivative of its loss."""
    if loss == HUBER:  # the mean over the outputs
        for o in range(classes):
            gap = min(np.float32(1.0), max(np.float32(-1.0), memory[z + o] - values[o]))
            memory[z + o] = gap / np.float32(classes)
    elif loss == HINGE:  # max(0, 1 + best wrong score - right score)
        best, top = label, memory[z + label]
        for o in range(classes):
            margin = memory[z + o] + np.float32(1.0)
            if o != label and (margin > top or (margin == top and o < best)):
                best, top = o, margin
        clear(memory, z, classes)
        memory[z + best] += np.float32(1.0)
        memory[z + label] -= np.float32(1.0)
    else:
        softmaxes(memory, z, 1, classes)
        memory[z + label] -= np.float32(1.0)
