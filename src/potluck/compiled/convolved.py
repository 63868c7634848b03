"""Gradient descent of small convolutional networks, one client after another and one sample after another.

Images stand with their channels last, between borders of zeros. A row of outputs is then one product: each of its rows
is a window of the image, and the next window begins a stride further on. Nothing is copied for it. Max-pooling comes
before the activation, and remembers which of its values was the largest.

Of each convolution the table has sizes and places. Rows of outputs have room for a multiple of four.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from potluck.compiled.jit import CUBE, FLAG, INT, MEMORY, PLACES, ROW, ROWS, STEPS, TABLE, kernel, pointer
from potluck.compiled.layers import activate, copied, slopes, through
from potluck.compiled.loops import add_rows, clear
from potluck.compiled.places import BY_X, GRADIENT, PARAMETERS, SECOND, SPEED, WEIGHTS
from potluck.compiled.products import product, transposed
from potluck.compiled.steps import LOOK, move

Array = Any  # a float32 array, and in annotations below Any is a float32
Memory = Any
ZERO, ONE = np.float32(0.0), np.float32(1.0)
(
    CIN, HEIGHT, WIDTH, COUT, KY, KX, STRIDE_Y, STRIDE_X, PAD_Y, PAD_X, OUT_Y, OUT_X, ROW_X, POOL_Y, POOL_X, POOLED_Y,
    POOLED_X, WEIGHT, BIAS, IMAGE, IMAGE_SIZE, WINNER, NEXT, NEXT_SIZE, NEXT_PAD_Y, NEXT_PAD_X, NEXT_WIDTH, BACK,
    SLACK,
) = range(29)  # fmt: skip


@kernel(MEMORY, PLACES, INT, INT)
def _convolve(m: Memory, c: Array, image: int, to: int) -> None:
    """All outputs of one sample, before pooling."""
    cin, cout, wide = c[CIN], c[COUT], c[WIDTH] + 2 * c[PAD_X]
    for y in range(c[OUT_Y]):
        product(
            m, to + y * c[ROW_X] * cout, cout, c[BIAS], 0, image + y * c[STRIDE_Y] * wide * cin, wide * cin, 1,
            c[STRIDE_X] * cin, c[WEIGHT], cout, c[ROW_X], cout, c[KY], c[KX] * cin,
        )  # fmt: skip


@kernel(MEMORY, PLACES, INT, INT, INT, INT)
def _pool(m: Memory, c: Array, act: int, source: int, winner: int, to: int) -> None:
    """The largest value of each window, activated, within the borders of the next image; and which value it was."""
    cout = c[COUT]
    for y in range(c[POOLED_Y]):
        for x in range(c[POOLED_X]):
            at = to + ((y + c[NEXT_PAD_Y]) * c[NEXT_WIDTH] + x + c[NEXT_PAD_X]) * cout
            best = winner + (y * c[POOLED_X] + x) * cout
            first = source + (y * c[POOL_Y] * c[ROW_X] + x * c[POOL_X]) * cout
            for o in range(cout):
                m[at + o], m[best + o] = m[first + o], ZERO
            for j in range(c[POOL_Y]):
                for i in range(c[POOL_X]):
                    number, here = np.float32(j * c[POOL_X] + i), first + (j * c[ROW_X] + i) * cout
                    for o in range(cout):
                        value, top, old = m[here + o], m[at + o], m[best + o]
                        m[best + o] = number if value > top else old
                        m[at + o] = value if value > top else top
            activate(act, m, at, cout)


@kernel(MEMORY, PLACES, INT, INT, INT, INT, INT)
def _unpool(m: Memory, c: Array, act: int, gradient: int, winner: int, image: int, to: int) -> None:
    """The gradient of the outputs before pooling: that of a window, at its largest value. `gradient` is changed."""
    cout = c[COUT]
    clear(m, to, c[OUT_Y] * c[ROW_X] * cout)
    for y in range(c[POOLED_Y]):
        for x in range(c[POOLED_X]):
            at = image + ((y + c[NEXT_PAD_Y]) * c[NEXT_WIDTH] + x + c[NEXT_PAD_X]) * cout
            by = gradient + ((y + c[NEXT_PAD_Y]) * c[NEXT_WIDTH] + x + c[NEXT_PAD_X]) * cout
            best = winner + (y * c[POOLED_X] + x) * cout
            through(act, m, by, at, cout)
            first = to + (y * c[POOL_Y] * c[ROW_X] + x * c[POOL_X]) * cout
            for j in range(c[POOL_Y]):
                for i in range(c[POOL_X]):
                    number, here = np.float32(j * c[POOL_X] + i), first + (j * c[ROW_X] + i) * cout
                    for o in range(cout):
                        m[here + o] = m[by + o] * np.float32(m[best + o] == number)


@kernel(MEMORY, PLACES, INT, INT, INT)
def _weigh(m: Memory, c: Array, shift: int, image: int, slope: int) -> None:
    """Add the gradient of weights and biases; it stands `shift` places after them."""
    cin, cout, wide, across = c[CIN], c[COUT], c[WIDTH] + 2 * c[PAD_X], c[KX] * c[CIN]
    for j in range(c[KY]):
        to = shift + c[WEIGHT] + j * across * cout
        product(
            m, to, cout, to, cout, image + j * wide * cin, c[STRIDE_Y] * wide * cin, c[STRIDE_X] * cin, 1, slope, cout,
            across, cout, c[OUT_Y], c[ROW_X],
        )  # fmt: skip
    add_rows(m, shift + c[BIAS], slope, cout, cout, c[OUT_Y] * c[ROW_X])


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
            _convolve(m, c, c[IMAGE] + b * c[IMAGE_SIZE], slope)
            winner = c[WINNER] + b * c[POOLED_Y] * c[POOLED_X] * c[COUT]
            _pool(m, c, act, slope, winner, c[NEXT] + b * c[NEXT_SIZE])
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
    S, B, P, L, D = rows.shape[1], rows.shape[2], s[PARAMETERS], len(heads), len(blocks)
    picked, counted, factor = np.empty(B, np.int64), np.empty(B, np.float32), np.ones(P, np.float32)
    gap = s[GRADIENT] - s[WEIGHTS]
    clear(m, zeros, wide.max())
    for e in range(D):
        clear(m, blocks[e, IMAGE], B * blocks[e, IMAGE_SIZE] + blocks[e, SLACK])
    for k in range(begin, end):
        for i in range(P):
            m[s[WEIGHTS] + i] = weights[k, i]
        clear(m, s[SPEED], P)
        clear(m, s[SECOND], P)
        taken = 0
        for round in range(S):
            n, total = 0, ZERO
            for b in range(B):
                if counts[k, round, b] > ZERO:
                    picked[n], counted[n] = rows[k, round, b], counts[k, round, b]
                    total += counts[k, round, b]
                    n += 1
            if n == 0:
                continue
            taken += 1
            clear(m, s[GRADIENT], P)
            _forward(m, blocks, act, x[k if own_x else 0], last, picked, n, wide, heads, z, slope)
            slopes(loss, m, d[L], z[L], n, wide[L], labels[k], values[k], picked, counted, ONE / max(total, ONE))
            for i in range(L - 1, -1, -1):
                J, M, to = wide[i], wide[i + 1], heads[i] + gap
                product(m, to, M, to, M, z[i], 0, J, 1, d[i + 1], M, J, M, 1, n)
                add_rows(m, to + J * M, d[i + 1], M, M, n)
                transposed(m, turned[i], J, heads[i], M, J, M)
                product(m, d[i], J, zeros, 0, d[i + 1], 0, 1, M, turned[i], J, n, J, 1, M)
                if i > 0:
                    through(act, m, d[i], z[i], n * J)
            for e in range(1, D):
                c = blocks[e]
                for i in range(c[KY] * c[KX]):
                    size = c[CIN] * c[COUT]
                    transposed(m, c[BACK] + i * size, c[CIN], c[WEIGHT] + i * size, c[COUT], c[CIN], c[COUT])
            for b in range(n):
                gradient = d[0] + b * wide[0]
                for e in range(D - 1, -1, -1):
                    c = blocks[e]
                    winner = c[WINNER] + b * c[POOLED_Y] * c[POOLED_X] * c[COUT]
                    _unpool(m, c, act, gradient, winner, c[NEXT] + b * c[NEXT_SIZE], slope)
                    _weigh(m, c, gap, c[IMAGE] + b * c[IMAGE_SIZE], slope)
                    if e > 0:
                        gradient = s[BY_X]
                        _back(m, c, slope, gradient)
            if rule[LOOK] > ZERO:
                copied(m, s[WEIGHTS], s[GRADIENT], P)
            else:
                move(m, s, rule, factor, moves, pulled, shift[k], lr[k], scale[k], taken)
        for i in range(P):
            weights[k, i] = m[s[WEIGHTS] + i]
    memory[0] = ZERO  # its last use: it must live until here
