"""Gradient descent of small convolutional networks, one client after another and one sample after another.

Images stand with their channels last, between borders of zeros. A row of outputs is then one product: each of its rows
is a window of the image, and the next window begins a stride further on. Nothing is copied for it. Max-pooling comes
before the activation, and remembers which of its values was the largest.

Of each convolution the table has sizes and places. Rows of outputs have room for a multiple of four.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from potluck.compiled.blocks import (
    BACK,
    BIAS,
    CIN,
    COUT,
    FORM,
    HEIGHT,
    IMAGE,
    IMAGE_SIZE,
    KX,
    KY,
    LISTS,
    NEXT,
    NEXT_SIZE,
    NEXT_WIDTH,
    OUT_X,
    OUT_Y,
    PAD_X,
    PAD_Y,
    PICKS,
    POOL_X,
    POOL_Y,
    POOLED_X,
    POOLED_Y,
    ROW_X,
    SLACK,
    SPAN,
    STRIDE_X,
    STRIDE_Y,
    SUMS,
    WEIGHT,
    WIDTH,
    WINNER,
)  # fmt: skip
from potluck.compiled.jit import CUBE, FLAG, INT, MEMORY, PLACES, ROW, ROWS, STEPS, TABLE, kernel, pointer
from potluck.compiled.layers import activate, copied, slopes, through
from potluck.compiled.loops import add_rows, clear
from potluck.compiled.places import BY_X, GRADIENT, PARAMETERS, SECOND, SPEED, WEIGHTS
from potluck.compiled.products import product, transposed
from potluck.compiled.steps import LOOK, move
from potluck.compiled.winners import (
    back_lists,
    bend,
    enlist,
    inner,
    pool,
    turn_sums,
    turn_weights,
    unpool,
    weigh_lists,
    weigh_picks,
)  # fmt: skip

Array = Any  # a float32 array, and in annotations below Any is a float32
Memory = Any
ZERO, ONE = np.float32(0.0), np.float32(1.0)


@kernel(MEMORY, PLACES, INT, INT, INT, INT, INT)
def _convolve(m: Memory, c: Array, act: int, image: int, rows: int, winner: int, to: int) -> None:
    """The next image of one sample. There is room for one row of windows at `rows`, before pooling."""
    cin, cout, wide = c[CIN], c[COUT], c[WIDTH] + 2 * c[PAD_X]
    to = inner(c, to)
    for y in range(c[POOLED_Y]):
        for j in range(c[POOL_Y]):
            product(
                m, rows + j * c[ROW_X] * cout, cout, c[BIAS], 0,
                image + (y * c[POOL_Y] + j) * c[STRIDE_Y] * wide * cin, wide * cin, 1, c[STRIDE_X] * cin, c[WEIGHT],
                cout, c[ROW_X], cout, c[KY], c[KX] * cin,
            )  # fmt: skip
        pool(m, c, rows, winner, to)
        activate(act, m, to, c[POOLED_X] * cout)
        winner, to = winner + c[POOLED_X] * cout, to + c[NEXT_WIDTH] * cout


@kernel(MEMORY, PLACES, INT, INT, INT)
def _weigh(m: Memory, c: Array, shift: int, image: int, slope: int) -> None:
    """Add the gradient of the weights; it stands `shift` places after them."""
    cin, cout, wide, across = c[CIN], c[COUT], c[WIDTH] + 2 * c[PAD_X], c[KX] * c[CIN]
    for j in range(c[KY]):
        to = shift + c[WEIGHT] + j * across * cout
        product(
            m, to, cout, to, cout, image + j * wide * cin, c[STRIDE_Y] * wide * cin, c[STRIDE_X] * cin, 1, slope, cout,
            across, cout, c[OUT_Y], c[ROW_X],
        )  # fmt: skip


@kernel(MEMORY, PLACES, INT, INT)
def _back(m: Memory, c: Array, slope: int, to: int) -> None:
    """The gradient of the image."""
    cin, cout, wide = c[CIN], c[COUT], c[WIDTH] + 2 * c[PAD_X]
    clear(m, to, c[IMAGE_SIZE])
    for y in range(c[OUT_Y]):
        for j in range(c[KY]):
            for i in range(c[KX]):
                place = to + ((y * c[STRIDE_Y] + j) * wide + i) * cin
                product(
                    m, place, c[STRIDE_X] * cin, place, c[STRIDE_X] * cin, slope + y * c[ROW_X] * cout, 0, 1, cout,
                    c[BACK] + (j * c[KX] + i) * cin * cout, cin, c[OUT_X], cin, 1, cout,
                )  # fmt: skip


@kernel(MEMORY, PLACES, ROWS, INT, FLAG)
def _enter(m: Memory, c: Array, x: Array, image: int, last: bool) -> None:
    """Write a sample between its borders; its channels may stand last already."""
    channels, height, width = c[CIN], c[HEIGHT], c[WIDTH]
    for y in range(height):
        to = image + ((y + c[PAD_Y]) * (width + 2 * c[PAD_X]) + c[PAD_X]) * channels
        for i in range(channels):
            for j in range(width):
                if last:
                    m[to + j * channels + i] = x[y * width + j, i]
                else:
                    m[to + j * channels + i] = x[i, y * width + j]


@kernel(MEMORY, TABLE, INT, CUBE, FLAG, PLACES, INT, PLACES, PLACES, PLACES, INT)
def _forward(
    m: Memory, blocks: Array, act: int, x: Array, last: bool, picked: Array, n: int, wide: Array, heads: Array,
    z: Array, slope: int,
) -> None:  # fmt: skip
    """The outputs of all layers for n samples; those of the last one are at z[L]."""
    L, D = len(heads), len(blocks)
    for b in range(n):
        _enter(m, blocks[0], x[picked[b]], blocks[0, IMAGE] + b * blocks[0, IMAGE_SIZE], last)
        for e in range(D):
            c = blocks[e]
            winner = c[WINNER] + b * c[POOLED_Y] * c[POOLED_X] * c[COUT]
            _convolve(m, c, act, c[IMAGE] + b * c[IMAGE_SIZE], slope, winner, c[NEXT] + b * c[NEXT_SIZE])
    for i in range(L):
        J, M = wide[i], wide[i + 1]
        product(m, z[i + 1], M, heads[i] + J * M, 0, z[i], 0, 1, J, heads[i], M, n, M, 1, J)
        if i < L - 1:
            activate(act, m, z[i + 1], n * M)


@kernel(ROW, PLACES, TABLE, INT, INT, CUBE, FLAG, PLACES, PLACES, PLACES, INT, INT, ROW, ROWS)
def answer(
    memory: Array, s: Array, blocks: Array, act: int, B: int, x: Array, last: bool, wide: Array, heads: Array, z: Array,
    slope: int, zeros: int, weights: Array, out: Array,
) -> None:  # fmt: skip
    """Outputs (N, O) for all samples, B at a time, of one network's weights (P,)."""
    base = (memory.ctypes.data + 63) // 64 * 64
    m = pointer(base)
    picked, L = np.empty(B, np.int64), len(heads)
    clear(m, zeros, wide.max())
    for e in range(len(blocks)):
        clear(m, blocks[e, IMAGE], B * blocks[e, IMAGE_SIZE] + blocks[e, SLACK])
    for i in range(s[PARAMETERS]):
        m[s[WEIGHTS] + i] = weights[i]
    for begin in range(0, len(x), B):
        n = min(B, len(x) - begin)
        for b in range(n):
            picked[b] = begin + b
        _forward(m, blocks, act, x, last, picked, n, wide, heads, z, slope)
        for b in range(n):
            for o in range(wide[L]):
                out[begin + b, o] = m[z[L] + b * wide[L] + o]
    memory[0] = ZERO  # its last use: it must live until here


@kernel(MEMORY, PLACES, TABLE, INT, INT, INT, INT, INT, INT, PLACES, TABLE)
def _backward(
    m: Memory, s: Array, blocks: Array, act: int, gap: int, n: int, last: int, wide: int, slope: int, filled: Array,
    places: Array,
) -> None:  # fmt: skip
    """Add the gradients of all convolutions for n samples, from those of their last images."""
    D = len(blocks)
    for e in range(D):
        c = blocks[e]
        if c[FORM] == LISTS:
            clear(m, c[SUMS], c[COUT] * c[SPAN])
            if e > 0:
                turn_weights(m, c)
        elif e > 0:
            for i in range(c[KY] * c[KX]):
                size = c[CIN] * c[COUT]
                transposed(m, c[BACK] + i * size, c[CIN], c[WEIGHT] + i * size, c[COUT], c[CIN], c[COUT])
    for b in range(n):
        gradient = last + b * wide
        for e in range(D - 1, -1, -1):
            c = blocks[e]
            image, winner = c[IMAGE] + b * c[IMAGE_SIZE], c[WINNER] + b * c[POOLED_Y] * c[POOLED_X] * c[COUT]
            bend(m, c, act, gap, gradient, c[NEXT] + b * c[NEXT_SIZE])
            if c[FORM] == LISTS:
                enlist(m, c, gradient, winner, filled, places)
                weigh_lists(m, c, image, filled)
            elif c[FORM] == PICKS:
                weigh_picks(m, c, gap, image, gradient, winner)
            else:
                unpool(m, c, gradient, winner, slope)
                _weigh(m, c, gap, image, slope)
            gradient = s[BY_X]
            if e > 0 and c[FORM] == LISTS:
                back_lists(m, c, gradient, places)
            elif e > 0:
                _back(m, c, slope, gradient)
    for e in range(D):
        if blocks[e, FORM] == LISTS:
            turn_sums(m, blocks[e], gap)


@kernel(MEMORY, TABLE, INT, INT, INT)
def ready(m: Memory, blocks: Array, B: int, zeros: int, widest: int) -> Any:
    """Clear what must be 0 from the start; return for how many places of outputs there must be lists."""
    windows = 1
    clear(m, zeros, widest)
    for e in range(len(blocks)):
        c = blocks[e]
        clear(m, c[IMAGE], B * c[IMAGE_SIZE] + c[SLACK])
        if c[FORM] == LISTS:
            clear(m, c[BACK], c[COUT] * c[SPAN])
            windows = max(windows, c[POOLED_Y] * c[POOLED_X] * c[POOL_Y] * c[POOL_X])
    return windows


@kernel(PLACES, ROW, PLACES, ROW)
def picking(rows: Array, counts: Array, picked: Array, counted: Array) -> Any:
    """Write the samples of a batch that count; return how many there are."""
    n = 0
    for b in range(len(rows)):
        if counts[b] > ZERO:
            picked[n], counted[n] = rows[b], counts[b]
            n += 1
    return n


@kernel(
    MEMORY, PLACES, TABLE, INT, CUBE, FLAG, INT, PLACES, ROWS, PLACES, ROW,
    PLACES, PLACES, PLACES, PLACES, PLACES, INT, INT, INT, PLACES, TABLE,
)  # fmt: skip
def gradient(
    m: Memory, s: Array, blocks: Array, act: int, x: Array, last: bool, n: int, labels: Array, values: Array,
    picked: Array, counted: Array,
    wide: Array, heads: Array, turned: Array, z: Array, d: Array, slope: int, zeros: int, loss: int, filled: Array,
    places: Array,
) -> None:  # fmt: skip
    """The gradient of the mean loss of n samples; `filled` and `places` have room for lists."""
    L, gap, total = len(heads), s[GRADIENT] - s[WEIGHTS], ZERO
    for b in range(n):
        total += counted[b]
    clear(m, s[GRADIENT], s[PARAMETERS])
    _forward(m, blocks, act, x, last, picked, n, wide, heads, z, slope)
    slopes(loss, m, d[L], z[L], n, wide[L], labels, values, picked, counted, ONE / max(total, ONE))
    for i in range(L - 1, -1, -1):
        J, M, to = wide[i], wide[i + 1], heads[i] + gap
        product(m, to, M, to, M, z[i], 0, J, 1, d[i + 1], M, J, M, 1, n)
        add_rows(m, to + J * M, d[i + 1], M, M, n)
        transposed(m, turned[i], J, heads[i], M, J, M)
        product(m, d[i], J, zeros, 0, d[i + 1], 0, 1, M, turned[i], J, n, J, 1, M)
        if i > 0:
            through(act, m, d[i], z[i], n * J)
    _backward(m, s, blocks, act, gap, n, d[0], wide[0], slope, filled, places)


@kernel(
    INT, INT, ROW, PLACES, TABLE, INT, "float32[:, :, :, ::1]", FLAG, FLAG, TABLE, CUBE, STEPS, CUBE,
    PLACES, PLACES, PLACES, PLACES, PLACES, INT, INT,
    INT, ROW, ROW, ROWS, ROW, ROW, ROW, ROWS,
)  # fmt: skip
def train(
    begin: int, end: int, memory: Array, s: Array, blocks: Array, act: int, x: Array, own_x: bool, last: bool,
    labels: Array, values: Array, rows: Array, counts: Array,
    wide: Array, heads: Array, turned: Array, z: Array, d: Array, slope: int, zeros: int,
    loss: int, rule: Array, moves: Array, weights: Array, lr: Array, scale: Array, pulled: Array, shift: Array,
) -> None:  # fmt: skip
    """Train the clients from `begin` to `end`: their rows of `weights` change.

    K clients, N samples, S steps, B samples a step: x (K or 1, N, channels, positions), or the other way round if
    `last`, labels (K, N), values (K, N, O), rows and counts (K, S, B). `blocks` has a row for each convolution. The
    linear layers have sizes `wide`, weights (J, M) then biases from `heads` on, and places for transposed weights,
    outputs and gradients.
    """
    base = (memory.ctypes.data + 63) // 64 * 64
    m = pointer(base)
    S, B, P = rows.shape[1], rows.shape[2], s[PARAMETERS]
    picked, counted, factor = np.empty(B, np.int64), np.empty(B, np.float32), np.ones(P, np.float32)
    filled = np.empty(blocks[:, COUT].max(), np.int64)
    places = np.empty((3, ready(m, blocks, B, zeros, wide.max())), np.int64)
    for k in range(begin, end):
        for i in range(P):
            m[s[WEIGHTS] + i] = weights[k, i]
        clear(m, s[SPEED], P)
        clear(m, s[SECOND], P)
        taken = 0
        for round in range(S):
            n = picking(rows[k, round], counts[k, round], picked, counted)
            if n == 0:
                continue
            taken += 1
            gradient(
                m, s, blocks, act, x[k if own_x else 0], last, n, labels[k], values[k], picked, counted, wide, heads,
                turned, z, d, slope, zeros, loss, filled, places,
            )  # fmt: skip
            if rule[LOOK] > ZERO:
                copied(m, s[WEIGHTS], s[GRADIENT], P)
            else:
                move(m, s, rule, factor, moves, pulled, shift[k], lr[k], scale[k], taken)
        for i in range(P):
            weights[k, i] = m[s[WEIGHTS] + i]
    memory[0] = ZERO  # its last use: it must live until here
