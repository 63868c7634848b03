"""Convolution over the parameters of a model, and its gradient by the kernels: FedConv's maps, without a graph.

A tensor is P planes of R x C numbers, a part of it P planes of r x c, and between them stands a kernel of a x b taps
for each plane, a = R - r + 1 and b = C - c + 1. All tensors of a model stand one after another in a row of numbers; the
table has a row for each. The innermost loop runs over c or over b, whichever is longer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from potluck.compiled.jit import FLAG, FLOAT, INT, MEMORY, ROW, TABLE, kernel, pointer

Array = Any  # a float32 array
Memory = Any
ZERO, ONE = np.float32(0.0), np.float32(1.0)
POSITIVE, NEGATIVE = np.float32(0.85), np.float32(0.001)  # of the modified leaky ReLU
SHORTEST = np.float32(1e-12)  # length of a kernel
# Sizes; places of v, g and c among the free numbers (-1: none), of the kernel, of what it is put on and what it makes.
P, R, C, PART_R, PART_C, V, G, SHIFT, KERNEL, FROM, TO = range(11)


@kernel(MEMORY, INT, MEMORY, INT, MEMORY, INT, INT, INT, INT, INT)
def _narrow(y: Memory, to: int, x: Memory, at: int, w: Memory, by: int, r: int, c: int, a: int, b: int) -> None:
    """Add the correlation of a plane (r + a - 1, c + b - 1) with a kernel (a, b) to a part (r, c)."""
    wide = c + b - 1
    for i in range(r):
        for s in range(a):
            source, taps, row = at + (i + s) * wide, by + s * b, to + i * c
            if c >= b:
                for t in range(b):
                    value = w[taps + t]
                    for j in range(c):
                        y[row + j] += value * x[source + t + j]
            else:
                for j in range(c):
                    total = ZERO
                    for t in range(b):
                        total += w[taps + t] * x[source + j + t]
                    y[row + j] += total


@kernel(MEMORY, INT, MEMORY, INT, MEMORY, INT, INT, INT, INT, INT)
def _widen(y: Memory, to: int, x: Memory, at: int, w: Memory, by: int, r: int, c: int, a: int, b: int) -> None:
    """Add the transposed correlation of a part (r, c) with a kernel (a, b) to a plane (r + a - 1, c + b - 1)."""
    wide = c + b - 1
    for i in range(r):
        for s in range(a):
            row, taps, source = to + (i + s) * wide, by + s * b, at + i * c
            if c >= b:
                for t in range(b):
                    value = w[taps + t]
                    for j in range(c):
                        y[row + t + j] += value * x[source + j]
            else:
                for j in range(c):
                    value = x[source + j]
                    for t in range(b):
                        y[row + j + t] += value * w[taps + t]


@kernel(MEMORY, INT, MEMORY, INT, MEMORY, INT, INT, INT, INT, INT)
def _taps(
    d: Memory, to: int, big: Memory, whole: int, small: Memory, part: int, r: int, c: int, a: int, b: int
) -> None:
    """Add the gradient by the taps, the same sum for both maps: d[s, t] += small[i, j] big[i + s, j + t]."""
    wide = c + b - 1
    for i in range(r):
        for s in range(a):
            row, taps, source = whole + (i + s) * wide, to + s * b, part + i * c
            if c >= b:
                for t in range(b):
                    total = ZERO
                    for j in range(c):
                        total += small[source + j] * big[row + t + j]
                    d[taps + t] += total
            else:
                for j in range(c):
                    value = small[source + j]
                    for t in range(b):
                        d[taps + t] += value * big[row + j + t]


@kernel(TABLE, ROW, ROW, ROW, ROW, ROW, FLAG, FLAG)
def forward(
    table: Array, free: Array, x: Array, base: Array, kernels: Array, y: Array, widens: bool, mlr: bool
) -> None:
    """y = MLR(x * w + c) of all tensors, with w = g v / |v|; where it widens, on top of `base`."""
    f, m = pointer(free.ctypes.data), pointer(kernels.ctypes.data)
    given, made, under = pointer(x.ctypes.data), pointer(y.ctypes.data), pointer(base.ctypes.data)
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
                _widen(made, to, given, own[FROM] + p * source, m, w, r, c, a, b)
            else:
                _narrow(made, to, given, own[FROM] + p * source, m, w, r, c, a, b)
            if mlr:
                for k in range(size):
                    made[to + k] *= POSITIVE if made[to + k] >= ZERO else NEGATIVE
    free[0] += ZERO  # arrays must live until here
    x[0] += ZERO
    base[0] += ZERO
    y[0] += ZERO


@kernel(TABLE, ROW, ROW, ROW, ROW, ROW, FLAG, FLAG)
def backward(table: Array, free: Array, x: Array, y: Array, slope: Array, d: Array, widens: bool, mlr: bool) -> None:
    """The gradient by the free numbers, `d`, from that by what they made, `slope`, which is changed."""
    f, to = pointer(free.ctypes.data), pointer(d.ctypes.data)
    given, made, by = pointer(x.ctypes.data), pointer(y.ctypes.data), pointer(slope.ctypes.data)
    for k in range(len(d)):
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
