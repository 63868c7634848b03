"""A closed-form continuous-time cell through time: states, adjoints, tangents, and FedCFC's second derivatives.

The equations are those of `potluck.models.cfc_loops`, for the samples of one batch; the leaky cell's
(`potluck.models.cfc_steps`) has no second derivatives here. All sequences stand by time step,
then sample. The memory's offsets are in the table `s` (`potluck.compiled.places`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from potluck.compiled.jit import FLAG, FLOAT, INT, MEMORY, PLACES, inlined, kernel
from potluck.compiled.loops import Memory, add_rows, clear, copies, tanhs, transpose
from potluck.compiled.places import (
    BACKBONE,
    BY2_Q,
    BY2_Q0,
    BY2_R,
    BY2_Z0,
    BY_Q,
    BY_Q0,
    BY_R,
    BY_X,
    BY_Z0,
    CHANNELS,
    DOT_M,
    DOT_N,
    DOT_Q,
    DOT_R,
    DOT_X,
    DOT_Z,
    FIRST,
    FIRST_BIAS,
    FIRST_T,
    FOLDED,
    GATED,
    GRADIENT,
    HIDDEN,
    INPUT,
    INPUT_BIAS,
    INPUT_T,
    LAST_BIAS,
    LAST_F,
    LAST_TF,
    LEAKY,
    SAMPLES,
    SPANS,
    STATE_T,
    STATES,
    TIMED,
    TURN,
    TURN_T,
    UNITS,
    UNITS_F,
    VALUES,
    Q,
    Z,
)  # fmt: skip
from potluck.compiled.products import times

Table = Any
ZERO, ONE, HALF, TWO, SMALLEST = (np.float32(number) for number in (0.0, 1.0, 0.5, 2.0, 1e-30))


@kernel(MEMORY, PLACES)
def prepare_cfc(m: Memory, s: Table) -> None:
    """Transpose the weights for the products of the forward pass."""
    v, C, N, H, J = s[FOLDED], s[CHANNELS], s[HIDDEN], s[BACKBONE], s[UNITS]
    transpose(m, s[INPUT_T], v + s[INPUT], C + N, H, C)
    transpose(m, s[STATE_T], v + s[INPUT] + C, C + N, H, N)
    transpose(m, s[FIRST_T], v + s[FIRST], H, J, H)
    for k in range(3):
        wide = s[UNITS_F + k] if s[UNITS_F + k] > 0 else H
        transpose(m, s[LAST_TF + k], v + s[LAST_F + k], wide, N, wide)


@kernel(MEMORY, PLACES, INT, INT, INT, INT)
def _heads(m: Memory, s: Table, r: int, q: int, z: int, n: int) -> None:
    """Add the last layers of the heads to the rows of r."""
    N, H, J, at = s[HIDDEN], s[BACKBONE], s[UNITS], 0
    for k in range(3):
        wide = s[UNITS_F + k]
        if wide > 0:
            times(m, r + k * N, 3 * N, q + at, 1, J, s[LAST_TF + k], N, n, N, wide)
        else:
            times(m, r + k * N, 3 * N, z, 1, H, s[LAST_TF + k], N, n, N, H)
        at += wide


@inlined(FLOAT, FLOAT, FLAG)
def _stays(w: Any, span: Any, timed: bool) -> Any:
    """exp(-softplus(f) span), of w = tanh(-f / 2): the part of a leaky cell's state that stays."""
    half = HALF + HALF * w
    return np.float32(math.exp(span * math.log(max(half, SMALLEST)))) if timed else half


@kernel(MEMORY, PLACES, INT, INT)
def forward_cfc(m: Memory, s: Table, T: int, n: int) -> None:
    """The states of n sequences of T steps, and all values on the way."""
    v, C, N, H, J = s[FOLDED], s[CHANNELS], s[HIDDEN], s[BACKBONE], s[UNITS]
    gated, leaky, timed = s[GATED] == 1, s[GATED] == LEAKY, s[TIMED] != 0
    copies(m, s[Z], v + s[INPUT_BIAS], H, T * n)
    times(m, s[Z], H, s[SAMPLES], 1, C, s[INPUT_T], H, T * n, H, C)
    copies(m, s[Q], v + s[FIRST_BIAS], J, T * n)
    copies(m, s[VALUES], v + s[LAST_BIAS], 3 * N, T * n)
    for t in range(T):
        z, q, r, x = s[Z] + t * n * H, s[Q] + t * n * J, s[VALUES] + t * n * 3 * N, s[STATES] + t * n * N
        if t > 0:
            times(m, z, H, x - n * N, 1, N, s[STATE_T], H, n, H, N)
        tanhs(m, z, n * H)
        if J > 0:
            times(m, q, J, z, 1, H, s[FIRST_T], J, n, J, H)
            tanhs(m, q, n * J)
        _heads(m, s, r, q, z, n)
        if timed and not leaky:
            for b in range(n):
                span = m[s[SPANS] + t * n + b]
                for i in range(N):
                    m[r + b * 3 * N + i] *= span
        tanhs(m, r, 3 * n * N)
        for b in range(n):
            f, to = r + b * 3 * N, x + b * N
            g, h = f + N, f + 2 * N
            if leaky:
                span = m[s[SPANS] + t * n + b] if timed else ONE
                for i in range(N):
                    stays = _stays(m[f + i], span, timed)
                    before = m[to - n * N + i] if t > 0 else ZERO
                    m[to + i] = stays * before + (ONE - stays) * HALF * (ONE + m[g + i]) * m[h + i]
            elif gated:
                for i in range(N):
                    m[to + i] = HALF * (m[g + i] + m[h + i] + m[f + i] * (m[g + i] - m[h + i]))
            else:
                for i in range(N):
                    m[to + i] = m[h + i] + HALF * m[g + i] * (ONE + m[f + i])


@kernel(MEMORY, PLACES, INT, INT, INT, INT, INT, INT)
def _through_heads(m: Memory, s: Table, w: int, e: int, r: int, t: int, n: int, way: int) -> None:
    """Way 0: r += slope e, adjoints. Way 1: e = the sum over the heads of slope r, tangents."""
    N, gated, timed = s[HIDDEN], s[GATED] != 0, s[TIMED] != 0
    for b in range(n):
        span = m[s[SPANS] + t * n + b] if timed else ONE
        f, to = w + b * 3 * N, r + b * 3 * N
        g, h, x = f + N, f + 2 * N, e + b * N
        for i in range(N):
            by_f = HALF * (m[g + i] - m[h + i]) if gated else HALF * m[g + i]
            by_h = HALF - HALF * m[f + i] if gated else ONE
            by_f *= (ONE - m[f + i] * m[f + i]) * span
            by_g = (HALF + HALF * m[f + i]) * (ONE - m[g + i] * m[g + i])
            by_h *= ONE - m[h + i] * m[h + i]
            if way == 0:
                m[to + i] += by_f * m[x + i]
                m[to + N + i] += by_g * m[x + i]
                m[to + 2 * N + i] += by_h * m[x + i]
            else:
                m[x + i] = by_f * m[to + i] + by_g * m[to + N + i] + by_h * m[to + 2 * N + i]


@kernel(MEMORY, PLACES, INT, INT, INT, INT)
def _through_leaky(m: Memory, s: Table, e: int, r: int, t: int, n: int) -> None:
    """r += slope e, and the adjoint of the state before += the part of it that stays times e."""
    N, timed = s[HIDDEN], s[TIMED] != 0
    for b in range(n):
        span = m[s[SPANS] + t * n + b] if timed else ONE
        f, to, x = s[VALUES] + (t * n + b) * 3 * N, r + b * 3 * N, e + b * N
        g, h, before = f + N, f + 2 * N, s[STATES] + ((t - 1) * n + b) * N
        for i in range(N):
            stays, kept = _stays(m[f + i], span, timed), ZERO
            if t > 0:
                kept = m[before + i]
                m[x - n * N + i] += stays * m[x + i]
            opened = HALF + HALF * m[g + i]
            m[to + i] += span * stays * (ONE - m[f + i]) * (kept - opened * m[h + i]) * m[x + i]
            m[to + N + i] += (ONE - stays) * HALF * m[h + i] * (ONE - m[g + i] * m[g + i]) * m[x + i]
            m[to + 2 * N + i] += (ONE - stays) * opened * (ONE - m[h + i] * m[h + i]) * m[x + i]


@kernel(MEMORY, INT, INT, INT, INT)
def _bent(m: Memory, to: int, given: int, value: int, count: int) -> None:
    """to = given (1 - value^2): through the slope of a tanh."""
    for i in range(count):
        m[to + i] = m[given + i] * (ONE - m[value + i] * m[value + i])


@kernel(MEMORY, PLACES, INT, INT, INT)
def backward_cfc(m: Memory, s: Table, first: int, T: int, n: int) -> None:
    """The adjoints of one pass. `first` is BY_X or BY2_X: x, r, q and z hold what comes from outside, and grow."""
    v, C, N, H, J = s[FOLDED], s[CHANNELS], s[HIDDEN], s[BACKBONE], s[UNITS]
    for t in range(T - 1, -1, -1):
        e, r = s[first] + t * n * N, s[first + 1] + t * n * 3 * N
        q0, q = s[first + 2] + t * n * J, s[first + 3] + t * n * J
        z0, z = s[first + 4] + t * n * H, s[first + 5] + t * n * H
        if t < T - 1:
            times(m, e, N, z + n * H, 1, H, v + s[INPUT] + C, C + N, n, N, H)
        if s[GATED] == LEAKY:
            _through_leaky(m, s, e, r, t, n)
        else:
            _through_heads(m, s, s[VALUES] + t * n * 3 * N, e, r, t, n, 0)
        at = 0
        for k in range(3):
            wide = s[UNITS_F + k]
            if wide > 0:
                times(m, q0 + at, J, r + k * N, 1, 3 * N, v + s[LAST_F + k], wide, n, wide, N)
            else:
                times(m, z0, H, r + k * N, 1, 3 * N, v + s[LAST_F + k], H, n, H, N)
            at += wide
        if J > 0:
            _bent(m, q, q0, s[Q] + t * n * J, n * J)
            times(m, z0, H, q, 1, J, v + s[FIRST], H, n, H, J)
        _bent(m, z, z0, s[Z] + t * n * H, n * H)


@kernel(MEMORY, PLACES, INT, INT, INT)
def clear_adjoints(m: Memory, s: Table, first: int, T: int, n: int) -> None:
    clear(m, s[first], T * n * s[HIDDEN])
    clear(m, s[first + 1], T * n * 3 * s[HIDDEN])
    clear(m, s[first + 2], T * n * s[UNITS])
    clear(m, s[first + 4], T * n * s[BACKBONE])


@kernel(MEMORY, PLACES, INT, INT, INT, INT, INT, INT, INT)
def _by_head(m: Memory, s: Table, k: int, by_r: int, by_q: int, q: int, z: int, rows: int, biased: int) -> None:
    """Add a head's gradients: rows of adjoints times rows of values. `biased` is 1 where the biases take part."""
    g, N, H, J, at = s[GRADIENT], s[HIDDEN], s[BACKBONE], s[UNITS], 0
    for other in range(k):
        at += s[UNITS_F + other]
    wide = s[UNITS_F + k]
    if wide > 0:
        times(m, g + s[FIRST] + at * H, H, by_q + at, J, 1, z, H, wide, H, rows)
        times(m, g + s[LAST_F + k], wide, by_r + k * N, 3 * N, 1, q + at, J, N, wide, rows)
    else:
        times(m, g + s[LAST_F + k], H, by_r + k * N, 3 * N, 1, z, H, N, H, rows)
    if biased:
        if wide > 0:
            add_rows(m, g + s[FIRST_BIAS] + at, by_q + at, J, wide, rows)
        add_rows(m, g + s[LAST_BIAS] + k * N, by_r + k * N, 3 * N, N, rows)


@kernel(MEMORY, PLACES, INT, INT)
def gradient_cfc(m: Memory, s: Table, T: int, n: int) -> None:
    """Add the gradient of all weights before the readout, from the adjoints of the first pass."""
    g, C, N, H = s[GRADIENT], s[CHANNELS], s[HIDDEN], s[BACKBONE]
    z = s[BY_Z0 + 1]
    times(m, g + s[INPUT], C + N, z, H, 1, s[SAMPLES], C, H, C, T * n)
    times(m, g + s[INPUT] + C, C + N, z + n * H, H, 1, s[STATES], N, H, N, (T - 1) * n)
    add_rows(m, g + s[INPUT_BIAS], z, H, H, T * n)
    for k in range(3):
        _by_head(m, s, k, s[BY_R], s[BY_Q], s[Q], s[Z], T * n, 1)


@kernel(MEMORY, PLACES, INT, INT, INT)
def tangents(m: Memory, s: Table, k: int, T: int, n: int) -> None:
    """How all values move with the last layer of head k, whose tangent is TURN."""
    N, H, J, rows = s[HIDDEN], s[BACKBONE], s[UNITS], T * n
    wide, at = s[UNITS_F + k], 0
    for other in range(k):
        at += s[UNITS_F + other]
    clear(m, s[DOT_R], rows * 3 * N)
    clear(m, s[DOT_N], rows * H)
    clear(m, s[DOT_M], rows * J)
    transpose(m, s[TURN_T], s[TURN], wide if wide > 0 else H, N, wide if wide > 0 else H)
    if wide > 0:
        times(m, s[DOT_R] + k * N, 3 * N, s[Q] + at, 1, J, s[TURN_T], N, rows, N, wide)
    else:
        times(m, s[DOT_R] + k * N, 3 * N, s[Z], 1, H, s[TURN_T], N, rows, N, H)
    for t in range(T):
        x, r = s[DOT_X] + t * n * N, s[DOT_R] + t * n * 3 * N
        a, z = s[DOT_N] + t * n * H, s[DOT_Z] + t * n * H
        c, q = s[DOT_M] + t * n * J, s[DOT_Q] + t * n * J
        if t > 0:
            times(m, a, H, x - n * N, 1, N, s[STATE_T], H, n, H, N)
            _bent(m, z, a, s[Z] + t * n * H, n * H)
            if J > 0:
                times(m, c, J, z, 1, H, s[FIRST_T], J, n, J, H)
                _bent(m, q, c, s[Q] + t * n * J, n * J)
            _heads(m, s, r, q, z, n)
        else:
            clear(m, z, n * H)
            clear(m, q, n * J)
        _through_heads(m, s, s[VALUES] + t * n * 3 * N, x, r, t, n, 1)


@kernel(MEMORY, PLACES, INT, INT, INT)
def bend_adjoints(m: Memory, s: Table, k: int, T: int, n: int) -> None:
    """What the tangents' own arithmetic adds to the adjoints of the second pass (`cfc_loops.second_order`)."""
    N, H, J, rows = s[HIDDEN], s[BACKBONE], s[UNITS], T * n
    gated, timed = s[GATED] != 0, s[TIMED] != 0
    for i in range(rows * J):
        m[s[BY2_Q0] + i] -= TWO * m[s[Q] + i] * m[s[DOT_M] + i] * m[s[BY_Q0] + i]
    for i in range(rows * H):
        m[s[BY2_Z0] + i] -= TWO * m[s[Z] + i] * m[s[DOT_N] + i] * m[s[BY_Z0] + i]
    wide, at = s[UNITS_F + k], 0
    for other in range(k):
        at += s[UNITS_F + other]
    if wide > 0:
        times(m, s[BY2_Q0] + at, J, s[BY_R] + k * N, 1, 3 * N, s[TURN], wide, rows, wide, N)
    else:
        times(m, s[BY2_Z0], H, s[BY_R] + k * N, 1, 3 * N, s[TURN], H, rows, H, N)
    for row in range(rows):
        span = m[s[SPANS] + row] if timed else ONE
        e, f, dot, to = s[BY_X] + row * N, s[VALUES] + row * 3 * N, s[DOT_R] + row * 3 * N, s[BY2_R] + row * 3 * N
        for i in range(N):
            wf, wg, wh = m[f + i], m[f + N + i], m[f + 2 * N + i]
            f_dot, g_dot, h_dot = m[e + i] * m[dot + i] * span, m[e + i] * m[dot + N + i], m[e + i] * m[dot + 2 * N + i]
            f_bend, g_bend, h_bend = ONE - wf * wf, ONE - wg * wg, ONE - wh * wh
            spread = HALF * (wg - wh) if gated else HALF * wg
            by_f = -TWO * wf * spread * f_dot + HALF * g_bend * g_dot
            by_g = HALF * f_bend * f_dot - wg * (ONE + wf) * g_dot
            by_h = -TWO * wh * h_dot
            if gated:
                by_f -= HALF * h_bend * h_dot
                by_h = -HALF * f_bend * f_dot - wh * (ONE - wf) * h_dot
            m[to + i] += by_f * f_bend * span
            m[to + N + i] += by_g * g_bend
            m[to + 2 * N + i] += by_h * h_bend


@kernel(MEMORY, PLACES, INT, INT, INT, INT)
def head_gradient(m: Memory, s: Table, k: int, T: int, n: int, curved: int) -> None:
    """Add the gradient of head k from the adjoints of the second pass and, if curved, from the tangents."""
    _by_head(m, s, k, s[BY2_R], s[BY2_Q], s[Q], s[Z], T * n, 1)
    if curved:
        _by_head(m, s, k, s[BY_R], s[BY_Q], s[DOT_Q], s[DOT_Z], T * n, 0)
