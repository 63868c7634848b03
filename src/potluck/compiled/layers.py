"""What the layers of dense and convolutional networks have in common: activations, and the derivative of the loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from potluck.compiled.jit import FLOAT, INT, MEMORY, PLACES, ROW, ROWS, kernel
from potluck.compiled.loops import HUBER, SOFTMAX, slope, softmaxes, tanhs

Array = Any  # a float32 array, and in annotations below Any is a float32
Memory = Any
RELU, TANH = 1, 2
ZERO, ONE = np.float32(0.0), np.float32(1.0)


@kernel(INT, MEMORY, INT, INT)
def activate(kind: int, m: Memory, at: int, count: int) -> None:
    if kind == RELU:
        for i in range(count):
            m[at + i] = ZERO if m[at + i] < ZERO else m[at + i]  # what is not a number stays so
    elif kind == TANH:
        tanhs(m, at, count)


@kernel(INT, MEMORY, INT, INT, INT)
def through(kind: int, m: Memory, d: int, z: int, count: int) -> None:
    """The gradient before an activation, from the activation's output."""
    if kind == RELU:
        for i in range(count):
            m[d + i] *= np.float32(m[z + i] > ZERO)  # a choice would be a jump that cannot be foreseen
    elif kind == TANH:
        for i in range(count):
            m[d + i] *= ONE - m[z + i] * m[z + i]


@kernel(MEMORY, INT, INT, INT)
def copied(m: Memory, to: int, source: int, count: int) -> None:
    for i in range(count):
        m[to + i] = m[source + i]


@kernel(INT, MEMORY, INT, INT, INT, INT, PLACES, ROWS, PLACES, ROW, FLOAT)
def slopes(
    loss: int, m: Memory, d: int, z: int, n: int, C: int, labels: Array, values: Array, picked: Array, counted: Array,
    by: Any,
) -> None:  # fmt: skip
    """The derivative of each sample's loss in its outputs, times its count and `by`."""
    copied(m, d, z, n * C)
    if loss == SOFTMAX:
        softmaxes(m, d, n, C)
    for b in range(n):
        at, part = d + b * C, counted[b] * by
        if loss == SOFTMAX:
            m[at + labels[picked[b]]] -= ONE
        else:
            slope(loss, m, at, C, labels[picked[b]], values[picked[b] if loss == HUBER else 0])
        for o in range(C):
            m[at + o] *= part
