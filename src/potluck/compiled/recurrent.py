"""Gradient descent of recurrent networks, one client after another, with its weights and values in cache.

Each client's weights are one row of P numbers in the order of `potluck.compiled.places`. What a client ends with
depends on its own samples alone: not on the others in the stack, nor on the padding, nor on the number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from potluck.compiled.bound import bind
from potluck.compiled.cfc import backward_cfc, clear_adjoints, forward_cfc, gradient_cfc, prepare_cfc
from potluck.compiled.gates import backward_gates, forward_gates, gradient_gates, prepare_gates
from potluck.compiled.jit import CUBE, FLAG, INT, MEMORY, PLACES, ROW, ROWS, STEPS, TABLE, kernel, pointer
from potluck.compiled.loops import HUBER, Array, Memory, clear, slope, transpose
from potluck.compiled.places import (
    BACKBONE,
    BY_X,
    CELL,
    CFC,
    CHANNELS,
    FOLDED,
    GRADIENT,
    HIDDEN,
    LAST_F,
    OUT,
    OUT_BIAS,
    OUT_T,
    OUTPUTS,
    PARAMETERS,
    SAMPLES,
    SECOND,
    SHARES,
    SLOPES,
    SPANS,
    SPEED,
    STATES,
    TIMED,
    UNITS_F,
    WEIGHTS,
)  # fmt: skip
from potluck.compiled.products import times
from potluck.compiled.steps import move

Table = Any
ONE, ZERO = np.float32(1.0), np.float32(0.0)
GROUP = 8  # samples whose values stay in cache together


@kernel(MEMORY, PLACES, ROW)
def _prepare(m: Memory, s: Table, factor: Array) -> None:
    """The weights times their factors, and transposed."""
    for i in range(s[PARAMETERS]):
        m[s[FOLDED] + i] = m[s[WEIGHTS] + i] * factor[i]
    transpose(m, s[OUT_T], s[FOLDED] + s[OUT], s[HIDDEN], s[OUTPUTS], s[HIDDEN])
    if s[CELL] == CFC:
        prepare_cfc(m, s)
    else:
        prepare_gates(m, s)


@kernel(MEMORY, PLACES, CUBE, ROWS, PLACES, PLACES, INT, FLAG)
def _gather(
    m: Memory, s: Table, x: Array, spans: Array, lengths: Array, picked: Array, n: int, ragged: bool
) -> int:  # fmt: skip
    """Copy a batch's samples by time step; return how many steps its longest sequence has."""
    T, C = x.shape[1], s[CHANNELS]
    if ragged:
        longest = 1
        for b in range(n):
            longest = max(longest, lengths[picked[b]])
        T = min(T, longest)
    for b in range(n):
        rows = x[picked[b]]
        for t in range(T):
            row = rows[t]
            for c in range(C):
                m[s[SAMPLES] + (t * n + b) * C + c] = row[c]
        if s[TIMED]:
            row = spans[picked[b]]
            for t in range(T):
                m[s[SPANS] + t * n + b] = row[t]
    return int(T)


@kernel(MEMORY, PLACES, INT, INT)
def _forward(m: Memory, s: Table, T: int, n: int) -> None:
    if s[CELL] == CFC:
        forward_cfc(m, s, T, n)
    else:
        forward_gates(m, s, T, n)


@kernel(MEMORY, PLACES, INT, PLACES)
def _outputs(m: Memory, s: Table, n: int, lasts: Array) -> None:
    """The outputs of n samples at their last steps, in SLOPES."""
    N, C = s[HIDDEN], s[OUTPUTS]
    for b in range(n):
        to, x = s[SLOPES] + b * C, s[STATES] + (lasts[b] * n + b) * N
        for o in range(C):
            m[to + o] = m[s[FOLDED] + s[OUT_BIAS] + o]
        times(m, to, C, x, 1, N, s[OUT_T], C, 1, C, N)


@kernel(MEMORY, PLACES, INT, INT, ROW, PLACES)
def _backward(m: Memory, s: Table, T: int, n: int, parts: Array, lasts: Array) -> None:
    """Add the gradient of a batch, whose derivatives of the loss are in SLOPES; each sample counts by its part."""
    N, C, out = s[HIDDEN], s[OUTPUTS], s[FOLDED] + s[OUT]
    if s[CELL] == CFC:
        clear_adjoints(m, s, BY_X, T, n)
    else:
        clear(m, s[BY_X], T * n * N)
    for b in range(n):
        e, x = s[BY_X] + (lasts[b] * n + b) * N, s[STATES] + (lasts[b] * n + b) * N
        for o in range(C):
            by = parts[b] * m[s[SLOPES] + b * C + o]
            m[s[GRADIENT] + s[OUT_BIAS] + o] += by
            for i in range(N):
                m[e + i] += by * m[out + o * N + i]
                m[s[GRADIENT] + s[OUT] + o * N + i] += by * m[x + i]
    if s[CELL] == CFC:
        backward_cfc(m, s, BY_X, T, n)
        gradient_cfc(m, s, T, n)
    else:
        backward_gates(m, s, T, n)
        gradient_gates(m, s, T, n)


@kernel(
    INT, INT, ROW, PLACES, "float32[:, :, :, ::1]", CUBE, TABLE, FLAG, FLAG, TABLE, CUBE, STEPS, CUBE,
    INT, ROW, ROW, ROW, ROWS, ROW, ROW, ROW, ROWS,
    INT, ROW, ROWS, ROW, INT, ROWS,
)  # fmt: skip
def train(
    begin: int, end: int, memory: Array, s: Table, x: Array, spans: Array, lengths: Array, own_x: bool, ragged: bool,
    labels: Array, values: Array, rows: Array, counts: Array,
    loss: int, rule: Array, factor: Array, moves: Array, weights: Array, lr: Array, scale: Array,
    pulled: Array, shift: Array,
    head: int, terms: Array, cud: Array, cum: Array, told: int, lud: Array,
) -> None:  # fmt: skip
    """Train the clients from `begin` to `end`: their rows of `weights` change, and of `lud`.

    K clients, N samples, S steps, B samples a step: x (K or 1, N, T, C), spans (K or 1, N, T), lengths, labels (K, N),
    values (K, N, O), rows and counts (K, S, B), weights, shift and lud (K, ...), lr, scale and cum (K).
    `head` is bound by the `terms` (-1: none), and `lud` adds up the gradient of its last layer: after all terms, or of
    the loss alone where `told` is 1.
    """
    m = pointer(memory.ctypes.data)
    S, B, P, C = rows.shape[1], rows.shape[2], s[PARAMETERS], s[OUTPUTS]
    picked, group = np.empty(B, np.int64), np.empty(B, np.int64)
    lasts, right = np.empty(B, np.int64), np.empty(B, np.int64)
    counted, parts = np.empty(B, np.float32), np.empty(B, np.float32)
    most = B if head >= 0 else GROUP
    D, V = 0, 0
    if head >= 0:
        D, V = s[HIDDEN] * (s[UNITS_F + head] if s[UNITS_F + head] > 0 else s[BACKBONE]), s[LAST_F + head]
    for k in range(begin, end):
        data = k if own_x else 0
        for i in range(P):
            m[s[WEIGHTS] + i] = weights[k, i]
        clear(m, s[SPEED], P)
        clear(m, s[SECOND], P)
        _prepare(m, s, factor)
        taken = 0
        for step in range(S):
            n, total = 0, ZERO
            for b in range(B):
                if counts[k, step, b] > ZERO:
                    picked[n], counted[n] = rows[k, step, b], counts[k, step, b]
                    total += counts[k, step, b]
                    n += 1
            if n == 0:
                continue
            taken += 1
            total = max(total, ONE)
            clear(m, s[GRADIENT], P)
            for first in range(0, n, most):
                size = min(most, n - first)
                for b in range(size):
                    group[b], parts[b] = picked[first + b], counted[first + b] / total
                span = spans[data if s[TIMED] else 0]
                T = _gather(m, s, x[data], span, lengths[k if ragged else 0], group, size, ragged)
                valid = ZERO
                for b in range(size):
                    length = lengths[k, group[b]] if ragged else T
                    lasts[b], right[b] = max(0, min(T, length) - 1), labels[k, group[b]]
                    if head >= 0:
                        for t in range(T):
                            share = counted[first + b] if t < length else ZERO
                            m[s[SHARES] + t * size + b] = share
                            valid += share
                _forward(m, s, T, size)
                _outputs(m, s, size, lasts)
                for b in range(size):
                    row = values[k, group[b] if loss == HUBER else 0]
                    slope(loss, m, s[SLOPES] + b * C, C, right[b], row)
                _backward(m, s, T, size, parts, lasts)
                if head >= 0:
                    if told:
                        for i in range(D):
                            lud[k, i] += m[s[GRADIENT] + V + i] * factor[V + i]
                    for i in range(T * size):
                        m[s[SHARES] + i] /= max(valid, ONE)
                    bind(m, s, head, T, size, loss, parts, lasts, right, factor, cud[k], cum[k], terms)
            move(m, s, rule, factor, moves, pulled, shift[k], lr[k], scale[k], taken)
            if head >= 0 and not told:
                for i in range(D):
                    lud[k, i] += m[s[GRADIENT] + V + i]
            _prepare(m, s, factor)
        for i in range(P):
            weights[k, i] = m[s[WEIGHTS] + i]
