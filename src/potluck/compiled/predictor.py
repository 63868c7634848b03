"""One lesson of a small recurrent classifier: a gradient step, and what the network says afterwards.

The network of `potluck.methods.parts.echopfl.predictor`: two layers of U units, T records of I numbers, one sequence.
NumPy reads its weights some forty times in as many calls. Here all records pass a matrix at once where they can, and
what goes from record to record adds rows of weights to sums in registers.

All tensors are given by their addresses, in the order w_0, v_0, b_0, w_1, v_1, b_1, u, c. States (P, U) have a row for
each record, and rows of zeros up to a multiple of four, which is what a tile of a product has.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from potluck.compiled.jit import FLOAT, INT, MEMORY, PLACES, ROW, ROWS, kernel, pointer
from potluck.compiled.loops import add_rows, clear, tanhs
from potluck.compiled.products import product, transposed
from potluck.compiled.tiles import tile
from potluck.compiled.vectors import WIDTH

Array = Any  # a float32 array, and in annotations below Any is a float32
Memory = Any
ZERO, ONE = np.float32(0.0), np.float32(1.0)
WIDE = 8 * WIDTH  # sums of one tile
STRIPE = tile(1, 8, False)


@kernel(MEMORY, INT, INT, INT, INT)
def _onto(m: Memory, out: int, left: int, right: int, U: int) -> None:
    """out[n] += the sum over j of left[j] right[j, n], all of length U."""
    whole = U - U % WIDE
    for n in range(0, whole, WIDE):
        STRIPE(m, out + n, 0, out + n, 0, left, 0, 1, 0, right + n, U, 1, U, 0)
    if whole < U:
        product(m, out + whole, 0, out + whole, 0, left, 0, 1, 0, right + whole, U, 1, U - whole, 1, U)


@kernel(MEMORY, INT, INT, INT, INT, INT, INT, INT, INT, INT, INT)
def _layer(m: Memory, w: int, v: int, b: int, below: int, J: int, h: int, T: int, P: int, U: int, spare: int) -> None:
    """h_t = tanh(W x_t + V h_(t-1) + b) for all records: below (P, J), h (P, U)."""
    transposed(m, spare, U, w, J, U, J)
    product(m, h, U, b, 0, below, 0, 1, J, spare, U, P, U, 1, J)
    transposed(m, spare, U, v, U, U, U)
    tanhs(m, h, U)
    for t in range(1, T):
        _onto(m, h + t * U, h + (t - 1) * U, spare, U)
        tanhs(m, h + t * U, U)


@kernel(MEMORY, INT, INT, INT, INT, INT)
def _back(m: Memory, v: int, h: int, d: int, T: int, U: int) -> None:
    """The gradient d (T, U) of a layer's outputs becomes that before its tanh, through time."""
    for t in range(T - 1, -1, -1):
        for i in range(t * U, t * U + U):
            m[d + i] *= ONE - m[h + i] * m[h + i]
        if t:
            _onto(m, d + (t - 1) * U, d + t * U, v, U)


@kernel(MEMORY, INT, INT, INT, INT, INT, INT, INT, INT, INT, INT, INT, INT, INT, FLOAT)
def _stepped(
    m: Memory, w: int, v: int, b: int, d: int, below: int, J: int, h: int, W: int, V: int, B: int, spare: int, T: int,
    U: int, step: Any,
) -> None:  # fmt: skip
    """Write a layer's weights after a step: w - step d^T below, v - step d^T (h of the record before), b - step d."""
    for i in range(T * U):
        m[spare + i] = -step * m[d + i]
    product(m, W, J, w, J, spare, 0, U, 1, below, J, U, J, 1, T)
    product(m, V, U, v, U, spare + U, 0, U, 1, h, U, U, U, 1, T - 1)
    for i in range(U):
        m[B + i] = m[b + i]
    add_rows(m, B, spare, U, U, T)


@kernel(PLACES, INT, INT)
def _at(given: Array, k: int, base: int) -> int:
    place: int = (given[k] - base) // 4
    return place


@kernel(MEMORY, PLACES, INT, ROWS, INT, INT, INT, INT, INT, INT)
def _forward(
    m: Memory, given: Array, base: int, x: Array, xs: int, h0: int, h1: int, spare: int, P: int, U: int
) -> None:
    """The states of both layers, and the records in the memory."""
    T, J = x.shape
    clear(m, xs, P * J)
    for t in range(T):
        for i in range(J):
            m[xs + t * J + i] = x[t, i]
    w, v, b = _at(given, 0, base), _at(given, 1, base), _at(given, 2, base)
    _layer(m, w, v, b, xs, J, h0, T, P, U, spare)
    w, v, b = _at(given, 3, base), _at(given, 4, base), _at(given, 5, base)
    _layer(m, w, v, b, h0, U, h1, T, P, U, spare)


@kernel(PLACES, ROWS, ROW, ROW, INT, FLOAT, PLACES)
def lesson(given: Array, x: Array, target: Array, used: Array, U: int, step: Any, out: Array) -> None:
    """Write the weights after one step on the mean cross-entropy over the records that are used: x (T, J)."""
    T, J = x.shape
    P = (T + 3) // 4 * 4
    size = P * U
    memory = np.empty(P * J + 4 * size + U * max(U, J, P) + 16, np.float32)
    base = (memory.ctypes.data + 63) // 64 * 64
    m = pointer(base)
    h0, h1, d, e, spare = 0, size, 2 * size, 3 * size, 4 * size
    xs = spare + U * max(U, J, P)
    _forward(m, given, base, x, xs, h0, h1, spare, P, U)
    u, new = _at(given, 6, base), _at(out, 6, base)
    count = ZERO
    for t in range(T):
        count += used[t]
    count = max(count, ONE)
    total = ZERO
    for j in range(U):
        m[new + j] = m[u + j]
    clear(m, d, size)
    for t in range(T):
        score = m[_at(given, 7, base)]
        at = t * U
        for j in range(U):
            score += m[h1 + at + j] * m[u + j]
        slope = (ONE / (ONE + np.exp(-score)) - target[t]) * used[t] / count
        total += slope
        for j in range(U):
            m[d + at + j] = slope * m[u + j]
            m[new + j] -= step * slope * m[h1 + at + j]
    m[_at(out, 7, base)] = m[_at(given, 7, base)] - step * total
    w1, v1 = _at(given, 3, base), _at(given, 4, base)
    _back(m, v1, h1, d, T, U)
    clear(m, e, size)
    product(m, e, U, e, U, d, 0, 1, U, w1, U, P, U, 1, U)
    W, V, B = _at(out, 3, base), _at(out, 4, base), _at(out, 5, base)
    _stepped(m, w1, v1, _at(given, 5, base), d, h0, U, h1, W, V, B, spare, T, U, step)
    w0, v0 = _at(given, 0, base), _at(given, 1, base)
    _back(m, v0, h0, e, T, U)
    W, V, B = _at(out, 0, base), _at(out, 1, base), _at(out, 2, base)
    _stepped(m, w0, v0, _at(given, 2, base), e, xs, J, h0, W, V, B, spare, T, U, step)
    memory[0] = ZERO  # its last use: it must live until here


@kernel(PLACES, ROWS, INT)
def last_score(given: Array, x: Array, U: int) -> float:
    """The score after the newest record."""
    T, J = x.shape
    P = (T + 3) // 4 * 4
    size = P * U
    memory = np.empty(P * J + 2 * size + U * max(U, J) + 16, np.float32)
    base = (memory.ctypes.data + 63) // 64 * 64
    m = pointer(base)
    _forward(m, given, base, x, 2 * size + U * max(U, J), 0, size, 2 * size, P, U)
    u = _at(given, 6, base)
    score = m[_at(given, 7, base)]
    for j in range(U):
        score += m[size + (T - 1) * U + j] * m[u + j]
    memory[0] = ZERO
    return float(score)
