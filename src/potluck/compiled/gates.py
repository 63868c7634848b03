"""GRU, LSTM and tanh cells through time, for the samples of one batch (equations: `potluck.models.scan`).

All sequences stand by time step, then sample. The memory's offsets are in the table `s` (`potluck.compiled.places`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from potluck.compiled.jit import INT, MEMORY, PLACES, kernel
from potluck.compiled.loops import Memory, add_rows, clear, copies, tanh_of, transpose
from potluck.compiled.places import (
    BY_Q,
    BY_R,
    BY_X,
    BY_Z,
    CELL,
    CHANNELS,
    FOLDED,
    GATES,
    GRADIENT,
    GRU,
    HIDDEN,
    INPUT,
    INPUT_BIAS,
    INPUT_T,
    LSTM,
    OTHER,
    SAMPLES,
    STATE,
    STATE_BIAS,
    STATE_T,
    STATES,
    VALUES,
)  # fmt: skip
from potluck.compiled.products import times

Table = Any
ONE, HALF, ZERO = np.float32(1.0), np.float32(0.5), np.float32(0.0)


@kernel(MEMORY, PLACES)
def prepare_gates(m: Memory, s: Table) -> None:
    """Transpose the weights for the products of the forward pass."""
    C, H = s[CHANNELS], s[HIDDEN]
    transpose(m, s[INPUT_T], s[FOLDED] + s[INPUT], C, s[GATES] * H, C)
    transpose(m, s[STATE_T], s[FOLDED] + s[STATE], H, s[GATES] * H, H)


@kernel(MEMORY, PLACES, INT, INT)
def forward_gates(m: Memory, s: Table, T: int, n: int) -> None:
    """The states of n sequences of T steps; the gates stay in VALUES, a GRU's product of n or an LSTM's c in OTHER."""
    v, C, H, G, cell = s[FOLDED], s[CHANNELS], s[HIDDEN], s[GATES] * s[HIDDEN], s[CELL]
    apart = G if cell != GRU else 2 * H  # a GRU's reset gate multiplies the product of n: it stays apart
    copies(m, s[VALUES], v + s[INPUT_BIAS], G, T * n)
    times(m, s[VALUES], G, s[SAMPLES], 1, C, s[INPUT_T], G, T * n, G, C)
    for row in range(T * n):
        for i in range(apart):
            m[s[VALUES] + row * G + i] += m[v + s[STATE_BIAS] + i]
    if cell == GRU:
        copies(m, s[OTHER], v + s[STATE_BIAS] + 2 * H, H, T * n)
    for t in range(T):
        gates, other, h = s[VALUES] + t * n * G, s[OTHER] + t * n * H, s[STATES] + t * n * H
        if t > 0:
            times(m, gates, G, h - n * H, 1, H, s[STATE_T], G, n, apart, H)
            if cell == GRU:
                times(m, other, H, h - n * H, 1, H, s[STATE_T] + 2 * H, G, n, H, H)
        for b in range(n):
            at, to, by = gates + b * G, h + b * H, other + b * H
            before = to - n * H
            if cell == GRU:
                for i in range(2 * H):
                    m[at + i] = HALF + HALF * tanh_of(HALF * m[at + i])
                for i in range(H):
                    m[at + 2 * H + i] = tanh_of(m[at + 2 * H + i] + m[at + i] * m[by + i])
                for i in range(H):
                    old = m[before + i] if t > 0 else ZERO
                    m[to + i] = m[at + 2 * H + i] + m[at + H + i] * (old - m[at + 2 * H + i])
            elif cell == LSTM:
                for i in range(2 * H):
                    m[at + i] = HALF + HALF * tanh_of(HALF * m[at + i])
                for i in range(H):
                    m[at + 2 * H + i] = tanh_of(m[at + 2 * H + i])
                    m[at + 3 * H + i] = HALF + HALF * tanh_of(HALF * m[at + 3 * H + i])
                for i in range(H):
                    old = m[by - n * H + i] if t > 0 else ZERO
                    m[by + i] = m[at + H + i] * old + m[at + i] * m[at + 2 * H + i]
                    m[to + i] = m[at + 3 * H + i] * tanh_of(m[by + i])
            else:
                for i in range(H):
                    m[to + i] = tanh_of(m[at + i])


@kernel(MEMORY, PLACES, INT, INT)
def backward_gates(m: Memory, s: Table, T: int, n: int) -> None:
    """The adjoints: BY_X holds those of the states from outside. BY_R takes the gates', BY_Q the products'."""
    v, H, G, cell = s[FOLDED], s[HIDDEN], s[GATES] * s[HIDDEN], s[CELL]
    clear(m, s[BY_Z], n * H)  # an LSTM's c
    for t in range(T - 1, -1, -1):
        for b in range(n):
            row = t * n + b
            e, at, h = s[BY_X] + row * H, s[VALUES] + row * G, s[STATES] + row * H
            other, gate, product, c = s[OTHER] + row * H, s[BY_R] + row * G, s[BY_Q] + row * G, s[BY_Z] + b * H
            back = e - n * H
            if cell == GRU:
                for i in range(H):
                    r, z, new = m[at + i], m[at + H + i], m[at + 2 * H + i]
                    old = m[h - n * H + i] if t > 0 else ZERO
                    by_n = m[e + i] * (ONE - z) * (ONE - new * new)
                    m[gate + i] = by_n * m[other + i] * r * (ONE - r)
                    m[gate + H + i] = m[e + i] * (old - new) * z * (ONE - z)
                    m[gate + 2 * H + i] = by_n
                    m[product + i], m[product + H + i] = m[gate + i], m[gate + H + i]
                    m[product + 2 * H + i] = by_n * r
                    if t > 0:
                        m[back + i] += m[e + i] * z
            elif cell == LSTM:
                for i in range(H):
                    a, f, g, o = m[at + i], m[at + H + i], m[at + 2 * H + i], m[at + 3 * H + i]
                    old = m[other - n * H + i] if t > 0 else ZERO
                    bent = tanh_of(m[other + i])
                    by_c = m[c + i] + m[e + i] * o * (ONE - bent * bent)
                    m[product + i] = by_c * g * a * (ONE - a)
                    m[product + H + i] = by_c * old * f * (ONE - f)
                    m[product + 2 * H + i] = by_c * a * (ONE - g * g)
                    m[product + 3 * H + i] = m[e + i] * bent * o * (ONE - o)
                    m[c + i] = by_c * f
            else:
                for i in range(H):
                    m[product + i] = m[e + i] * (ONE - m[h + i] * m[h + i])
        if t > 0:
            times(m, s[BY_X] + (t - 1) * n * H, H, s[BY_Q] + t * n * G, 1, G, v + s[STATE], H, n, H, G)


@kernel(MEMORY, PLACES, INT, INT)
def gradient_gates(m: Memory, s: Table, T: int, n: int) -> None:
    """Add the gradient of all weights before the readout."""
    g, C, H, G = s[GRADIENT], s[CHANNELS], s[HIDDEN], s[GATES] * s[HIDDEN]
    gates, products = s[BY_R] if s[CELL] == GRU else s[BY_Q], s[BY_Q]
    times(m, g + s[INPUT], C, gates, G, 1, s[SAMPLES], C, G, C, T * n)
    add_rows(m, g + s[INPUT_BIAS], gates, G, G, T * n)
    times(m, g + s[STATE], H, products + n * G, G, 1, s[STATES], H, G, H, (T - 1) * n)
    add_rows(m, g + s[STATE_BIAS], products, G, G, T * n)
