"""Convolution over the parameters of a model, and its gradient by the kernels: FedConv's maps, without a graph.

A tensor is P planes of R x C numbers, a part of it P planes of r x c, and between them stands a kernel of a x b taps
for each plane, a = R - r + 1 and b = C - c + 1. All tensors of a model stand one after another in a row of numbers; the
table has a row for each. All sums are tiles (`tiles.slide`): some rows of a vector of numbers beside each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from potluck.compiled.jit import FLAG, FLOAT, INT, MEMORY, ROW, TABLE, kernel, pointer
from potluck.compiled.tiles import slide
from potluck.compiled.vectors import WIDTH

Array = Any  # a float32 array
Memory = Any
ZERO, ONE = np.float32(0.0), np.float32(1.0)
POSITIVE, NEGATIVE = np.float32(0.85), np.float32(0.001)  # of the modified leaky ReLU
SHORTEST = np.float32(1e-12)  # length of a kernel
EIGHT, FOUR, SINGLE = slide(8), slide(4), slide(1)
# Sizes; places of v, g and c among the free numbers (-1: none), of the kernel, of what it is put on and what it makes.
P, R, C, PART_R, PART_C, V, G, SHIFT, KERNEL, FROM, TO = range(11)


@kernel(MEMORY, INT, INT, INT, INT, MEMORY, INT, INT, INT, MEMORY, INT, INT, INT, INT)
def _slide(
    y: Memory, to: int, by_y: int, M: int, N: int, x: Memory, at: int, by_o: int, by_m: int, w: Memory, by: int,
    by_w: int, a: int, b: int,
) -> None:  # fmt: skip
    """y[m, n] += the sum over s and t of w[s, t] x[s by_o + m by_m + n + t]."""
    M4, M8 = M - M % 4, M - M % 8
    for n in range(0, N, WIDTH):
        wide = min(WIDTH, N - n)
        for i in range(0, M8, 8):
            EIGHT(y, to + i * by_y + n, by_y, x, at + i * by_m + n, by_o, by_m, w, by, by_w, a, b, wide)
        if M4 > M8:
            FOUR(y, to + M8 * by_y + n, by_y, x, at + M8 * by_m + n, by_o, by_m, w, by, by_w, a, b, wide)
        for i in range(M4, M):
            SINGLE(y, to + i * by_y + n, by_y, x, at + i * by_m + n, by_o, by_m, w, by, by_w, a, b, wide)


@kernel(MEMORY, INT, MEMORY, INT, MEMORY, INT, INT, INT, INT, INT)
def _narrow(y: Memory, to: int, x: Memory, at: int, w: Memory, by: int, r: int, c: int, a: int, b: int) -> None:
    """Add the correlation of a plane (r + a - 1, c + b - 1) with a kernel (a, b) to a part (r, c)."""
    wide = c + b - 1
    if b > 1:
        _slide(y, to, c, r, c, x, at, wide, wide, w, by, b, a, b)
        return
    count = r * c  # rows follow each other in both: they are one, and a tile takes a vector of it for a row
    whole = count - count % WIDTH
    _slide(y, to, WIDTH, whole // WIDTH, WIDTH, x, at, c, WIDTH, w, by, 1, a, 1)
    _slide(y, to + whole, 0, 1, count - whole, x, at + whole, c, 0, w, by, 1, a, 1)


@kernel(MEMORY, INT, MEMORY, INT, MEMORY, INT, INT, INT, INT, INT, MEMORY)
def _widen(
    y: Memory, to: int, x: Memory, at: int, w: Memory, by: int, r: int, c: int, a: int, b: int, spare: Memory
) -> None:
    """Add the transposed correlation of a part (r, c) with a kernel (a, b) to a plane (r + a - 1, c + b - 1).

    That is a correlation of the part, within borders of zeros, with the kernel turned round; both are in `spare`.
    """
    wide = c + 2 * (b - 1)
    turned = (r + 2 * (a - 1)) * wide
    for i in range(turned):
        spare[i] = ZERO
    for i in range(r):
        for j in range(c):
            spare[(i + a - 1) * wide + b - 1 + j] = x[at + i * c + j]
    for k in range(a * b):
        spare[turned + k] = w[by + a * b - 1 - k]
    _narrow(y, to, spare, 0, spare, turned, r + a - 1, c + b - 1, a, b)


@kernel(MEMORY, INT, MEMORY, INT, MEMORY, INT, INT, INT, INT, INT)
def _taps(
    d: Memory, to: int, big: Memory, whole: int, small: Memory, part: int, r: int, c: int, a: int, b: int
) -> None:
    """Add the gradient by the taps, the same sum for both maps: d[s, t] += small[i, j] big[i + s, j + t]."""
    if b > 1:
        _narrow(d, to, big, whole, small, part, a, b, r, c)
        return
    for s in range(a):
        total = ZERO
        for k in range(r * c):
            total += small[part + k] * big[whole + s * c + k]
        d[to + s] += total


@kernel(TABLE, MEMORY, MEMORY, MEMORY, MEMORY, MEMORY, MEMORY, FLAG, FLAG)
def making(
    table: Array, f: Memory, given: Memory, under: Memory, m: Memory, spare: Memory, made: Memory, widens: bool,
    mlr: bool,
) -> None:  # fmt: skip
    """made = MLR(given * w + c) of all tensors, with w = g v / |v|; where it widens, on top of `under`.

    There must be room for all kernels at m, and for what `spared` says at `spare`.
    """
    for e in range(len(table)):
        own = table[e]
        r, c = own[PART_R], own[PART_C]
        a, b = own[R] - r + 1, own[C] - c + 1
        whole, part = own[R] * own[C], r * c
        source, size = (part, whole) if widens else (whole, part)
        for p in range(own[P]):
            v, w, to = own[V] + p * a * b, own[KERNEL] + p * a * b, own[TO] + p * size
            scale = ONE
            if own[G] >= 0:
                total = ZERO
                for k in range(a * b):
                    total += f[v + k] * f[v + k]
                scale = f[own[G] + p] / max(np.sqrt(total), SHORTEST)
            for k in range(a * b):
                m[w + k] = scale * f[v + k]
            shift = f[own[SHIFT] + p] if own[SHIFT] >= 0 else ZERO
            for k in range(size):
                made[to + k] = shift + (under[to + k] if widens else ZERO)
            if widens:
                _widen(made, to, given, own[FROM] + p * source, m, w, r, c, a, b, spare)
            else:
                _narrow(made, to, given, own[FROM] + p * source, m, w, r, c, a, b)
            if mlr:
                for k in range(size):
                    made[to + k] *= POSITIVE if made[to + k] >= ZERO else NEGATIVE


@kernel(TABLE, MEMORY, MEMORY, MEMORY, MEMORY, MEMORY, INT, FLAG, FLAG)
def unmaking(
    table: Array, f: Memory, given: Memory, made: Memory, by: Memory, to: Memory, count: int, widens: bool, mlr: bool
) -> None:
    """The gradient by the free numbers, `to`, from that by what they made, `by`, which is changed."""
    for k in range(count):
        to[k] = ZERO
    for e in range(len(table)):
        own = table[e]
        r, c = own[PART_R], own[PART_C]
        a, b = own[R] - r + 1, own[C] - c + 1
        whole, part = own[R] * own[C], r * c
        source, size = (part, whole) if widens else (whole, part)
        for p in range(own[P]):
            v, here, at = own[V] + p * a * b, own[TO] + p * size, own[FROM] + p * source
            if mlr:
                for k in range(size):
                    by[here + k] *= POSITIVE if made[here + k] >= ZERO else NEGATIVE
            if own[SHIFT] >= 0:
                total = ZERO
                for k in range(size):
                    total += by[here + k]
                to[own[SHIFT] + p] = total
            if widens:
                _taps(to, v, by, here, given, at, r, c, a, b)
            else:
                _taps(to, v, given, at, by, here, r, c, a, b)
            if own[G] >= 0:  # w = g v / |v|
                square, along = ZERO, ZERO
                for k in range(a * b):
                    square += f[v + k] * f[v + k]
                    along += f[v + k] * to[v + k]
                length = max(np.sqrt(square), SHORTEST)
                along /= length
                scale = f[own[G] + p] / length
                to[own[G] + p] = along
                for k in range(a * b):
                    to[v + k] = scale * (to[v + k] - along / length * f[v + k])


@kernel(TABLE, ROW, ROW, ROW, ROW, ROW, ROW, FLAG, FLAG)
def forward(
    table: Array, free: Array, x: Array, base: Array, kernels: Array, spare: Array, y: Array, widens: bool, mlr: bool
) -> None:
    """`making` of arrays."""
    f, m, given, under = (
        pointer(free.ctypes.data),
        pointer(kernels.ctypes.data),
        pointer(x.ctypes.data),
        pointer(base.ctypes.data),
    )
    making(table, f, given, under, m, pointer(spare.ctypes.data), pointer(y.ctypes.data), widens, mlr)
    free[0] += ZERO  # arrays must live until here
    x[0] += ZERO
    base[0] += ZERO
    kernels[0] += ZERO
    spare[0] += ZERO
    y[0] += ZERO


@kernel(TABLE, ROW, ROW, ROW, ROW, ROW, FLAG, FLAG)
def backward(table: Array, free: Array, x: Array, y: Array, slope: Array, d: Array, widens: bool, mlr: bool) -> None:
    """`unmaking` of arrays."""
    f, given, made = pointer(free.ctypes.data), pointer(x.ctypes.data), pointer(y.ctypes.data)
    by, to = pointer(slope.ctypes.data), pointer(d.ctypes.data)
    unmaking(table, f, given, made, by, to, len(d), widens, mlr)
    free[0] += ZERO
    x[0] += ZERO
    y[0] += ZERO
    slope[0] += ZERO
    d[0] += ZERO


@kernel(ROW, ROW, ROW, ROW, FLOAT, INT)
def adam(free: Array, first: Array, second: Array, d: Array, rate: Any, taken: int) -> None:
    """The `taken`-th step of Adam, counted from 1."""
    one, two = np.float32(1.0 - 0.9**taken), np.float32(1.0 - 0.999**taken)
    for k in range(len(free)):
        first[k] = np.float32(0.9) * first[k] + np.float32(0.1) * d[k]
        second[k] = np.float32(0.999) * second[k] + np.float32(0.001) * d[k] * d[k]
        free[k] -= rate * (first[k] / one) / (np.sqrt(second[k] / two) + np.float32(1e-8))
