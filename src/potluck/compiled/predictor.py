"""One lesson of a small recurrent classifier: a gradient step, and what the network says afterwards.

The network of `potluck.methods.parts.echopfl.predictor`: two layers of U units, T records of I numbers, one sequence.
NumPy reads its weights some forty times in as many calls. Here each row of weights is used for all records while it is
in cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from potluck.compiled.jit import FLOAT, ROW, ROWS, kernel, pointer
from potluck.compiled.loops import tanhs

Array = Any  # a float32 array, and in annotations below Any is a float32
ZERO, ONE = np.float32(0.0), np.float32(1.0)


@kernel(ROWS, ROWS, ROW, ROWS, ROWS)
def _layer(w: Array, v: Array, b: Array, below: Array, h: Array) -> None:
    """h_t = tanh(W x_t + V h_(t-1) + b) for all records: below (T, I), h (T, U)."""
    T, U, J = h.shape[0], h.shape[1], below.shape[1]
    for i in range(U):
        for t in range(T):
            total = ZERO
            for j in range(J):
                total += w[i, j] * below[t, j]
            h[t, i] = total + b[i]
    m = pointer(h.ctypes.data)
    tanhs(m, 0, U)
    for t in range(1, T):
        for i in range(U):
            total = ZERO
            for j in range(U):
                total += v[i, j] * h[t - 1, j]
            h[t, i] += total
        tanhs(m, t * U, U)


@kernel(ROWS, ROWS, ROWS, ROWS)
def _back(v: Array, h: Array, d: Array, spare: Array) -> None:
    """The gradient d (T, U) of a layer's outputs becomes that before its tanh, through time."""
    T, U = h.shape
    for t in range(T - 1, -1, -1):
        for i in range(U):
            d[t, i] *= ONE - h[t, i] * h[t, i]
        if t == 0:
            return
        for j in range(U):
            spare[0, j] = ZERO
        for i in range(U):
            by = d[t, i]
            for j in range(U):
                spare[0, j] += by * v[i, j]
        for j in range(U):
            d[t - 1, j] += spare[0, j]


@kernel(ROWS, ROWS, ROWS, FLOAT, ROWS, "int64")
def _stepped(w: Array, d: Array, below: Array, step: Any, out: Array, late: int) -> None:
    """out = w - step d^T below; with `late`, of each record and the one before: the way back in time."""
    T = d.shape[0]
    for i in range(w.shape[0]):
        for j in range(w.shape[1]):
            out[i, j] = w[i, j]
        for t in range(late, T):
            by = -step * d[t, i]
            for j in range(w.shape[1]):
                out[i, j] += by * below[t - late, j]


@kernel(
    ROWS, ROWS, ROW, ROWS, ROWS, ROW, ROW, ROW, ROWS, ROW, ROW, FLOAT,
    ROWS, ROWS, ROW, ROWS, ROWS, ROW, ROW, ROW,
)  # fmt: skip
def lesson(
    w0: Array, v0: Array, b0: Array, w1: Array, v1: Array, b1: Array, u: Array, c: Array, x: Array, target: Array,
    used: Array, step: Any, W0: Array, V0: Array, B0: Array, W1: Array, V1: Array, B1: Array, U_: Array, C: Array,
) -> None:  # fmt: skip
    """Write the weights after one step on the mean cross-entropy over the records that are used: x (T, I)."""
    T, U = x.shape[0], len(u)
    h0, h1 = np.empty((T, U), np.float32), np.empty((T, U), np.float32)
    d, e, spare = np.empty((T, U), np.float32), np.empty((T, U), np.float32), np.empty((1, U), np.float32)
    _layer(w0, v0, b0, x, h0)
    _layer(w1, v1, b1, h0, h1)
    count = ZERO
    for t in range(T):
        count += used[t]
    count = max(count, ONE)
    total = ZERO
    for j in range(U):
        U_[j] = u[j]
    for t in range(T):
        score = c[0]
        for j in range(U):
            score += h1[t, j] * u[j]
        slope = (ONE / (ONE + np.exp(-score)) - target[t]) * used[t] / count
        total += slope
        for j in range(U):
            d[t, j] = slope * u[j]
            U_[j] -= step * slope * h1[t, j]
    C[0] = c[0] - step * total
    _back(v1, h1, d, spare)
    _stepped(w1, d, h0, step, W1, 0)
    _stepped(v1, d, h1, step, V1, 1)
    for t in range(T):
        for j in range(U):
            e[t, j] = ZERO
    for i in range(U):
        B1[i] = b1[i]
        for t in range(T):
            B1[i] -= step * d[t, i]
            for j in range(U):
                e[t, j] += d[t, i] * w1[i, j]
    _back(v0, h0, e, spare)
    _stepped(w0, e, x, step, W0, 0)
    _stepped(v0, e, h0, step, V0, 1)
    for i in range(U):
        B0[i] = b0[i]
        for t in range(T):
            B0[i] -= step * e[t, i]


@kernel(ROWS, ROWS, ROW, ROWS, ROWS, ROW, ROW, ROW, ROWS)
def last_score(w0: Array, v0: Array, b0: Array, w1: Array, v1: Array, b1: Array, u: Array, c: Array, x: Array) -> float:
    """The score after the newest record."""
    T, U = x.shape[0], len(u)
    h0, h1 = np.empty((T, U), np.float32), np.empty((T, U), np.float32)
    _layer(w0, v0, b0, x, h0)
    _layer(w1, v1, b1, h0, h1)
    score = c[0]
    for j in range(U):
        score += h1[T - 1, j] * u[j]
    return float(score)
