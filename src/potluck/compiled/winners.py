"""Pooling in kernels, and the gradient of a convolution behind it: only the largest value of each window has one.

Of four outputs under a 2x2 pooling three have no gradient, and others in each channel. A product of whole rows would
mostly multiply by zero. Two forms leave that out. `LISTS`: the gradients of each channel, and of each place, stand in
lists, and each entry adds one window of contiguous numbers. `PICKS`: where an image has so few channels that windows
are short, each channel picks the numbers at its own winner.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from potluck.compiled.blocks import (
    ACROSS,
    AT_ONCE,
    AT_ONCE_BACK,
    BACK,
    BIAS,
    BY_CHANNEL,
    BY_PLACE,
    CIN,
    CODE_X,
    CODE_Y,
    COUT,
    IMAGE_SIZE,
    KX,
    KY,
    NEXT_PAD_X,
    NEXT_PAD_Y,
    NEXT_WIDTH,
    OUT_Y,
    PAD_X,
    POOL_X,
    POOL_Y,
    POOLED_X,
    POOLED_Y,
    ROW_X,
    SPAN,
    STRIDE_X,
    STRIDE_Y,
    SUMS,
    VECTORS,
    WEIGHT,
    WIDTH,
)  # fmt: skip
from potluck.compiled.jit import INT, MEMORY, PLACES, TABLE, as_float, kernel
from potluck.compiled.layers import through
from potluck.compiled.lists import pick, pooled, walk
from potluck.compiled.loops import add_rows, clear
from potluck.compiled.products import transposed
from potluck.compiled.vectors import WIDTH as VECTOR

Array = Any
Memory = Any
ZERO = np.float32(0.0)
SQUARE, PAIR = pooled(2, 2), pooled(1, 2)
FIVE, THREE, ONE = (pick(taps, 2, False) for taps in (5, 3, 1))
FIVE_PART, THREE_PART, ONE_PART = (pick(taps, 1, True) for taps in (5, 3, 1))


@kernel(PLACES, INT)
def inner(c: Array, image: int) -> Any:
    """Where the next image begins within its borders."""
    return image + (c[NEXT_PAD_Y] * c[NEXT_WIDTH] + c[NEXT_PAD_X]) * c[COUT]


@kernel(MEMORY, PLACES, INT, INT, INT)
def _pool(m: Memory, c: Array, first: int, best: int, at: int) -> None:
    """One window of any size."""
    cout = c[COUT]
    for o in range(cout):
        m[at + o], m[best + o] = m[first + o], ZERO
    for j in range(c[POOL_Y]):
        for i in range(c[POOL_X]):
            code, here = np.float32(j * c[CODE_Y] + i * c[CODE_X]), first + (j * c[ROW_X] + i) * cout
            for o in range(cout):
                value, top, old = m[here + o], m[at + o], m[best + o]
                larger = value > top or value != value
                m[best + o] = code if larger else old
                m[at + o] = value if larger else top


@kernel(MEMORY, PLACES, INT, INT, INT)
def pool(m: Memory, c: Array, source: int, winner: int, to: int) -> None:
    """The largest value of each window in a row of windows, and the code of its place."""
    cout, by_row, code_y, code_x = c[COUT], c[ROW_X] * c[COUT], c[CODE_Y], c[CODE_X]
    for x in range(c[POOLED_X]):
        at, best, first = to + x * cout, winner + x * cout, source + x * c[POOL_X] * cout
        if c[POOL_Y] == 2 and c[POOL_X] == 2:
            for o in range(0, cout, VECTOR):
                SQUARE(m, at + o, best + o, first + o, by_row, cout, code_y, code_x, cout - o)
        elif c[POOL_Y] == 1 and c[POOL_X] == 2:
            for o in range(0, cout, VECTOR):
                PAIR(m, at + o, best + o, first + o, by_row, cout, code_y, code_x, cout - o)
        else:
            _pool(m, c, first, best, at)


@kernel(MEMORY, PLACES, INT, INT, INT, INT)
def bend(m: Memory, c: Array, act: int, shift: int, gradient: int, image: int) -> None:
    """Take the gradient by the next image through the activation, and add that of the biases, `shift` places on."""
    by, at, count = inner(c, gradient), inner(c, image), c[POOLED_X] * c[COUT]
    for _y in range(c[POOLED_Y]):
        through(act, m, by, at, count)
        add_rows(m, shift + c[BIAS], by, c[COUT], c[COUT], c[POOLED_X])
        by, at = by + c[NEXT_WIDTH] * c[COUT], at + c[NEXT_WIDTH] * c[COUT]


@kernel(MEMORY, PLACES, INT, INT, INT)
def unpool(m: Memory, c: Array, gradient: int, winner: int, to: int) -> None:
    """The gradient of all outputs before pooling: that of a window, at its largest value."""
    cout = c[COUT]
    clear(m, to, c[OUT_Y] * c[ROW_X] * cout)
    for y in range(c[POOLED_Y]):
        for x in range(c[POOLED_X]):
            by = inner(c, gradient) + (y * c[NEXT_WIDTH] + x) * cout
            best = winner + (y * c[POOLED_X] + x) * cout
            first = to + (y * c[POOL_Y] * c[ROW_X] + x * c[POOL_X]) * cout
            for j in range(c[POOL_Y]):
                for i in range(c[POOL_X]):
                    code, here = np.float32(j * c[CODE_Y] + i * c[CODE_X]), first + (j * c[ROW_X] + i) * cout
                    for o in range(cout):
                        m[here + o] = m[by + o] * np.float32(m[best + o] == code)


@kernel(MEMORY, PLACES, INT, INT, PLACES, TABLE)
def enlist(m: Memory, c: Array, gradient: int, winner: int, filled: Array, places: Array) -> None:
    """Write all gradients that are not 0 to the lists of their channel and of their place.

    Then `filled` has twice the length of each channel's list, and a column of `places` for each place: where its window
    begins in the image, its list, and its length.
    """
    cout, area, cells, cin = c[COUT], c[POOL_Y] * c[POOL_X], c[POOLED_Y] * c[POOLED_X], c[CIN]
    by_row, by_column = c[STRIDE_Y] * (c[WIDTH] + 2 * c[PAD_X]) * cin, c[STRIDE_X] * cin
    ends, bits = np.empty(area + 1, np.int64), np.empty(area, np.float32)
    filled[:cout] = 0
    begin = c[BY_PLACE]
    ends[area] = begin + 2 * cells * area * cout  # what is 0 goes behind all lists
    for y in range(c[POOLED_Y]):
        for x in range(c[POOLED_X]):
            cell = y * c[POOLED_X] + x
            by, best = inner(c, gradient) + (y * c[NEXT_WIDTH] + x) * cout, winner + cell * cout
            first = y * c[POOL_Y] * by_row + x * c[POOL_X] * by_column
            for k in range(area):
                place = first + k // c[POOL_X] * by_row + k % c[POOL_X] * by_column
                places[0, cell * area + k], bits[k] = place, as_float(np.int32(place))
                places[1, cell * area + k] = ends[k] = begin
                begin += 2 * cout
            own, span = c[BY_CHANNEL], np.int32(0)
            for o in range(cout):
                value, code = m[by + o], np.uint64(m[best + o])
                there = value != ZERO
                to = code if there else np.uint64(area)
                at = own + filled[o]
                m[at], m[at + 1] = value, bits[code]
                at = ends[to]
                m[at], m[at + 1] = value, as_float(span)
                filled[o] += 2 * there
                ends[to] = at + 2 * there
                own += 2 * cells
                span = np.int32(span + np.int32(c[SPAN]))
            for k in range(area):
                places[2, cell * area + k] = (ends[k] - places[1, cell * area + k]) >> 1


@kernel(MEMORY, PLACES, INT, PLACES)
def weigh_lists(m: Memory, c: Array, image: int, filled: Array) -> None:
    """Add the gradient of the weights, channels first, from their lists."""
    by_row, cells = (c[WIDTH] + 2 * c[PAD_X]) * c[CIN], c[POOLED_Y] * c[POOLED_X]
    for o in range(c[COUT]):
        entries, to = c[BY_CHANNEL] + 2 * o * cells, c[SUMS] + o * c[SPAN]
        for n in range(0, c[ACROSS], c[VECTORS] * VECTOR):
            for j in range(0, c[KY], c[AT_ONCE]):
                rows = min(c[AT_ONCE], c[KY] - j)
                out, right = to + j * c[ACROSS] + n, image + j * by_row + n
                walk(m, rows, c[VECTORS], out, c[ACROSS], right, by_row, entries, filled[o] >> 1)


@kernel(MEMORY, PLACES, INT, TABLE)
def back_lists(m: Memory, c: Array, to: int, places: Array) -> None:
    """The gradient of the image from the lists of all places; the weights for it stay in cache meanwhile."""
    by_row, count = (c[WIDTH] + 2 * c[PAD_X]) * c[CIN], c[POOLED_Y] * c[POOLED_X] * c[POOL_Y] * c[POOL_X]
    clear(m, to, c[IMAGE_SIZE])
    for n in range(0, c[ACROSS], c[VECTORS] * VECTOR):
        for j in range(0, c[KY], c[AT_ONCE_BACK]):
            rows = min(c[AT_ONCE_BACK], c[KY] - j)
            for i in range(count):
                if places[2, i] > 0:
                    out, right = to + places[0, i] + j * by_row + n, c[BACK] + j * c[ACROSS] + n
                    walk(m, rows, c[VECTORS], out, by_row, right, c[ACROSS], places[1, i], places[2, i])


@kernel(MEMORY, PLACES)
def turn_weights(m: Memory, c: Array) -> None:
    """Write the weights channels first, as `back_lists` reads them."""
    across, cout = c[KX] * c[CIN], c[COUT]
    for j in range(c[KY]):
        transposed(m, c[BACK] + j * c[ACROSS], c[SPAN], c[WEIGHT] + j * across * cout, cout, across, cout)


@kernel(MEMORY, PLACES, INT)
def turn_sums(m: Memory, c: Array, shift: int) -> None:
    """Write the sums of `weigh_lists` in the order of the weights, `shift` places after them."""
    across, cout = c[KX] * c[CIN], c[COUT]
    for j in range(c[KY]):
        transposed(m, shift + c[WEIGHT] + j * across * cout, cout, c[SUMS] + j * c[ACROSS], c[SPAN], cout, across)


@kernel(MEMORY, PLACES, INT, INT, INT, INT)
def weigh_picks(m: Memory, c: Array, shift: int, image: int, gradient: int, winner: int) -> None:
    """Add the gradient of the weights; each channel picks the numbers of the image at its own winner."""
    cout, wide, across = c[COUT], (c[WIDTH] + 2 * c[PAD_X]) * c[CIN], c[KX] * c[CIN]
    below, by_row, by_column = c[STRIDE_Y] * wide, c[POOL_Y] * c[STRIDE_Y] * wide, c[POOL_X] * c[STRIDE_X] * c[CIN]
    slope, by_slope, rows, columns = inner(c, gradient), c[NEXT_WIDTH] * cout, c[POOLED_Y], c[POOLED_X]
    pairs = cout - cout % (2 * VECTOR)
    for j in range(c[KY]):
        t = 0
        while t < across:
            out, x = shift + c[WEIGHT] + (j * across + t) * cout, image + j * wide + t
            taps = 5 if across - t >= 5 else 3 if across - t >= 3 else 1
            for n in range(0, pairs, 2 * VECTOR):
                o, d, w = out + n, slope + n, winner + n
                if taps == 5:
                    FIVE(m, o, cout, x, below, by_row, by_column, d, by_slope, w, cout, rows, columns, 0)
                elif taps == 3:
                    THREE(m, o, cout, x, below, by_row, by_column, d, by_slope, w, cout, rows, columns, 0)
                else:
                    ONE(m, o, cout, x, below, by_row, by_column, d, by_slope, w, cout, rows, columns, 0)
            for n in range(pairs, cout, VECTOR):
                o, d, w, some = out + n, slope + n, winner + n, cout - n
                if taps == 5:
                    FIVE_PART(m, o, cout, x, below, by_row, by_column, d, by_slope, w, cout, rows, columns, some)
                elif taps == 3:
                    THREE_PART(m, o, cout, x, below, by_row, by_column, d, by_slope, w, cout, rows, columns, some)
                else:
                    ONE_PART(m, o, cout, x, below, by_row, by_column, d, by_slope, w, cout, rows, columns, some)
            t += taps
