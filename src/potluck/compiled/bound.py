"""FedCFC's terms within a step: the gradient of one head is bound to a direction, a size and an activity.

The equations are those of `potluck.methods.parts.fedcfc.bind`. The product of the loss's Hessian with u is exact:
tangents forwards, then one pass of adjoints. That pass takes the gradient of the activity along, because both are
linear in what they start from.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from potluck.compiled.cfc import ONE, TWO, Table, backward_cfc, bend_adjoints, clear_adjoints, head_gradient, tangents
from potluck.compiled.jit import FLOAT, INT, MEMORY, PLACES, ROW, kernel
from potluck.compiled.loops import HUBER, SOFTMAX, Array, Memory, clear
from potluck.compiled.places import (
    BACKBONE,
    BY2_Q0,
    BY2_R,
    BY2_X,
    DOT_X,
    FOLDED,
    GRADIENT,
    HIDDEN,
    LAST_BIAS,
    LAST_F,
    MEANS,
    OUT,
    OUTPUTS,
    SHARES,
    SLOPES,
    TURN,
    UNITS,
    UNITS_F,
    Q,
    Z,
)  # fmt: skip

CEILING = np.float32(1.7159)  # of the scaled tanh (`potluck.models.cfc`)
ZERO = np.float32(0.0)
DIRECTION, MAGNITUDE, ACTIVITY, TARGET, PRINTED, SMALLEST = range(6)  # the terms' weights and forms


@kernel(MEMORY, PLACES, INT, ROW, ROW, FLOAT, ROW)
def _turn(m: Memory, s: Table, k: int, factor: Array, cud: Array, cum: Any, terms: Array) -> bool:
    """Put u = λd ∂R_d/∂q + λm ∂R_m/∂q in TURN, times the factor of V; False where it is 0."""
    wide = s[UNITS_F + k] if s[UNITS_F + k] > 0 else s[BACKBONE]
    count, at, to = s[HIDDEN] * wide, s[LAST_F + k], s[TURN]
    norm = length = both = ZERO
    for i in range(count):
        q = m[s[GRADIENT] + at + i] * factor[at + i]
        norm, length, both = norm + q * q, length + cud[i] * cud[i], both + q * cud[i]
    norm, length = np.sqrt(norm), np.sqrt(length)
    turns = terms[DIRECTION] != ZERO and length > ZERO
    shrinks = terms[MAGNITUDE] != ZERO and cum >= ZERO and norm > cum
    if not (norm >= terms[SMALLEST]) or not (turns or shrinks):
        return False
    near = both / (norm * length) if turns else ZERO  # the cosine
    for i in range(count):
        q = m[s[GRADIENT] + at + i] * factor[at + i] / norm
        u = terms[MAGNITUDE] * q if shrinks else ZERO
        if turns:
            u -= terms[DIRECTION] * (cud[i] / length - near * q) / norm
        m[to + i] = u * factor[at + i]
    return True


@kernel(MEMORY, PLACES, INT, INT, ROW, PLACES, PLACES)
def _bend_loss(m: Memory, s: Table, n: int, loss: int, parts: Array, lasts: Array, labels: Array) -> None:
    """Add what the loss's own curvature makes of the tangents of the outputs to the adjoints of the last states."""
    N, C, out = s[HIDDEN], s[OUTPUTS], s[FOLDED] + s[OUT]
    dots = s[MEANS]
    for b in range(n):
        x, z, to = s[DOT_X] + (lasts[b] * n + b) * N, s[SLOPES] + b * C, s[BY2_X] + (lasts[b] * n + b) * N
        mean = ZERO
        for o in range(C):
            dot = ZERO
            for i in range(N):
                dot += m[out + o * N + i] * m[x + i]
            m[dots + o] = dot
            mean += dot * (m[z + o] + (ONE if o == labels[b] else ZERO))
        for o in range(C):
            if loss == SOFTMAX:
                by = (m[z + o] + (ONE if o == labels[b] else ZERO)) * (m[dots + o] - mean)
            elif loss == HUBER:
                by = m[dots + o] / np.float32(C) if abs(m[z + o]) * np.float32(C) < ONE else ZERO
            else:
                by = ZERO
            for i in range(N):
                m[to + i] += parts[b] * by * m[out + o * N + i]


@kernel(MEMORY, INT, INT)
def _top(m: Memory, at: int, count: int) -> Any:
    top = m[at]
    for i in range(1, count):
        top = max(top, m[at + i])
    return top


@kernel(MEMORY, INT, INT, FLOAT)
def _ties(m: Memory, at: int, count: int, top: Any) -> Any:
    found = ZERO
    for i in range(count):
        if m[at + i] == top:
            found += ONE
    return found


@kernel(MEMORY, PLACES, INT, ROW)
def _raise_activity(m: Memory, s: Table, rows: int, terms: Array) -> bool:
    """Add λa ∂R_a to the adjoints of f's least active layer, at its most active unit; False where it is 0.

    The last layer is linear, so its mean output is that of the mean features. Units that tie share the gradient.
    """
    N, H, J, wide = s[HIDDEN], s[BACKBONE], s[UNITS], s[UNITS_F]
    features, apart, many = (s[Q], J, wide) if wide > 0 else (s[Z], H, H)
    mean, last = s[MEANS], s[MEANS] + many
    clear(m, mean, many)
    total = ZERO
    for row in range(rows):
        share = m[s[SHARES] + row]
        total += share
        if share > ZERO:
            for i in range(many):
                m[mean + i] += share * m[features + row * apart + i]
    for o in range(N):  # f = -2 r: the scan's weights contain the logistic's half
        out = m[s[FOLDED] + s[LAST_BIAS] + o] * total
        for i in range(many):
            out += m[s[FOLDED] + s[LAST_F] + o * many + i] * m[mean + i]
        m[last + o] = -TWO * out
    top = _top(m, last, N)
    hidden = CEILING * _top(m, mean, many) if wide > 0 else top + ONE
    least = min(top, hidden)
    if terms[PRINTED] == ZERO and not least < terms[TARGET]:
        return False
    by = terms[ACTIVITY] * (ONE if terms[PRINTED] != ZERO else -ONE)
    if top == hidden:
        by *= np.float32(0.5)
    if top == least:
        part = -TWO * by / _ties(m, last, N, top)
        for o in range(N):
            if m[last + o] == top:
                for row in range(rows):
                    m[s[BY2_R] + row * 3 * N + o] += part * m[s[SHARES] + row]
    if hidden == least:
        most = _top(m, mean, wide)
        part = CEILING * by / _ties(m, mean, wide, most)
        for o in range(wide):
            if m[mean + o] == most:
                for row in range(rows):
                    m[s[BY2_Q0] + row * J + o] += part * m[s[SHARES] + row]
    return True


@kernel(MEMORY, PLACES, INT, INT, INT, INT, ROW, PLACES, PLACES, ROW, ROW, FLOAT, ROW)
def bind(
    m: Memory, s: Table, k: int, T: int, n: int, loss: int, parts: Array, lasts: Array, labels: Array, factor: Array,
    cud: Array, cum: Any, terms: Array,
) -> None:  # fmt: skip
    """Add the gradient of the terms to that of head k, for the batch whose gradient is there."""
    clear_adjoints(m, s, BY2_X, T, n)
    curved = (terms[DIRECTION] != ZERO or terms[MAGNITUDE] != ZERO) and _turn(m, s, k, factor, cud, cum, terms)
    if curved:
        tangents(m, s, k, T, n)
        bend_adjoints(m, s, k, T, n)
        _bend_loss(m, s, n, loss, parts, lasts, labels)
    active = terms[ACTIVITY] != ZERO and _raise_activity(m, s, T * n, terms)
    if curved or active:
        backward_cfc(m, s, BY2_X, T, n)
        head_gradient(m, s, k, T, n, 1 if curved else 0)
