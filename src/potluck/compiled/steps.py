"""One step of a client whose weights are one row of numbers: SGD with momentum or Adam, a pull, and clipping."""

from __future__ import annotations

from typing import Any

import numpy as np

from potluck.compiled.jit import FLOAT, INT, MEMORY, PLACES, ROW, kernel
from potluck.compiled.places import GRADIENT, PARAMETERS, SECOND, SPEED, WEIGHTS

Array = Any  # a float32 array, and in annotations below Any is a float32
Memory = Any
Table = Any
ONE, ZERO = np.float32(1.0), np.float32(0.0)
MOMENTUM, ADAM, CLIP, PULLED, PULLED_FIRST, LOOK = range(6)  # the rule of a step; look: none, return the gradient


@kernel(MEMORY, PLACES, ROW, ROW, ROW, FLOAT)
def _pull(m: Memory, s: Table, shift: Array, pulled: Array, moves: Array, scale: Any) -> None:
    """Add a term that is affine in the weights to the gradient."""
    for i in range(s[PARAMETERS]):
        if pulled[i] > ZERO:
            m[s[GRADIENT] + i] += moves[i] * (scale * m[s[WEIGHTS] + i] + shift[i])


@kernel(MEMORY, PLACES, ROW, ROW, ROW, ROW, ROW, FLOAT, FLOAT, INT)
def move(
    m: Memory, s: Table, rule: Array, factor: Array, moves: Array, pulled: Array, shift: Array, rate: Any, scale: Any,
    taken: int,
) -> None:  # fmt: skip
    """Move the weights against their gradient; `taken` counts Adam's steps from 1."""
    P, w, g, v, u = s[PARAMETERS], s[WEIGHTS], s[GRADIENT], s[SPEED], s[SECOND]
    for i in range(P):
        m[g + i] *= factor[i] * moves[i]
    if rule[PULLED_FIRST] > ZERO:
        _pull(m, s, shift, pulled, moves, scale)
    if rule[CLIP] > ZERO:
        total = ZERO
        for i in range(P):
            total += m[g + i] * m[g + i]
        norm = np.sqrt(total)
        if not norm <= rule[CLIP]:
            short = rule[CLIP] / norm
            for i in range(P):
                m[g + i] *= short
    if rule[PULLED] > ZERO:
        _pull(m, s, shift, pulled, moves, scale)
    if rule[ADAM] > ZERO:
        one = np.float32(1.0 - 0.9**taken)
        two = np.float32(1.0 - 0.999**taken)
        for i in range(P):
            m[v + i] = np.float32(0.9) * m[v + i] + np.float32(0.1) * m[g + i]
            m[u + i] = np.float32(0.999) * m[u + i] + np.float32(0.001) * m[g + i] * m[g + i]
            m[w + i] -= moves[i] * rate * (m[v + i] / one) / (np.sqrt(m[u + i] / two) + np.float32(1e-8))
    elif rule[MOMENTUM] > ZERO:
        for i in range(P):
            m[v + i] = rule[MOMENTUM] * m[v + i] + m[g + i]
            m[w + i] -= rate * m[v + i]
    else:
        for i in range(P):
            m[w + i] -= rate * m[g + i]
