"""Small products and functions that vectorise well. M, N, J and B count rows, columns and what is summed over."""

from __future__ import annotations

from typing import Any

import numpy as np

from potluck.compiled.jit import FLOAT, INT, MEMORY, ROW, ROWS, as_float, inlined, kernel, pointwise
from potluck.compiled.vectors import WIDTH, load, load_all, more, nothing, plus, store

Array = Any  # within a kernel: a float32 array
Memory = Any  # within a kernel: scratch memory of float32
SOFTMAX, HINGE, HUBER = 0, 1, 2


@kernel(ROWS, ROWS, ROWS, INT, INT, INT)
def dots(out: Array, left: Array, right: Array, M: int, N: int, J: int) -> None:
    """out = left right^T, in tiles of 4 x 4 sums that stay in registers. Both are read along their rows."""
    M4, N4 = M - M % 4, N - N % 4
    for m in range(0, M4, 4):
        for n in range(0, N4, 4):
            a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = np.float32(0.0)
            c0 = c1 = c2 = c3 = d0 = d1 = d2 = d3 = np.float32(0.0)
            for j in range(J):
                x0, x1, x2, x3 = left[m, j], left[m + 1, j], left[m + 2, j], left[m + 3, j]
                y0, y1, y2, y3 = right[n, j], right[n + 1, j], right[n + 2, j], right[n + 3, j]
                a0, a1, a2, a3 = a0 + x0 * y0, a1 + x1 * y0, a2 + x2 * y0, a3 + x3 * y0
                b0, b1, b2, b3 = b0 + x0 * y1, b1 + x1 * y1, b2 + x2 * y1, b3 + x3 * y1
                c0, c1, c2, c3 = c0 + x0 * y2, c1 + x1 * y2, c2 + x2 * y2, c3 + x3 * y2
                d0, d1, d2, d3 = d0 + x0 * y3, d1 + x1 * y3, d2 + x2 * y3, d3 + x3 * y3
            out[m, n], out[m + 1, n], out[m + 2, n], out[m + 3, n] = a0, a1, a2, a3
            out[m, n + 1], out[m + 1, n + 1], out[m + 2, n + 1], out[m + 3, n + 1] = b0, b1, b2, b3
            out[m, n + 2], out[m + 1, n + 2], out[m + 2, n + 2], out[m + 3, n + 2] = c0, c1, c2, c3
            out[m, n + 3], out[m + 1, n + 3], out[m + 2, n + 3], out[m + 3, n + 3] = d0, d1, d2, d3
        for n in range(N4, N):
            a0 = a1 = a2 = a3 = np.float32(0.0)
            for j in range(J):
                y0 = right[n, j]
                a0, a1 = a0 + left[m, j] * y0, a1 + left[m + 1, j] * y0
                a2, a3 = a2 + left[m + 2, j] * y0, a3 + left[m + 3, j] * y0
            out[m, n], out[m + 1, n], out[m + 2, n], out[m + 3, n] = a0, a1, a2, a3
    for m in range(M4, M):
        for n in range(0, N4, 4):
            a0 = b0 = c0 = d0 = np.float32(0.0)
            for j in range(J):
                x0 = left[m, j]
                a0, b0 = a0 + x0 * right[n, j], b0 + x0 * right[n + 1, j]
                c0, d0 = c0 + x0 * right[n + 2, j], d0 + x0 * right[n + 3, j]
            out[m, n], out[m, n + 1], out[m, n + 2], out[m, n + 3] = a0, b0, c0, d0
        for n in range(N4, N):
            a0 = np.float32(0.0)
            for j in range(J):
                a0 += left[m, j] * right[n, j]
            out[m, n] = a0


@kernel(ROWS, ROW, INT, INT, ROWS, INT, INT, INT)
def add_product(out: Array, left: Array, by_j: int, by_m: int, right: Array, M: int, N: int, J: int) -> None:
    """out[m] += the sum over j of left[j, m] right[j]. `left` is flat: j and m move by_j and by_m places in it."""
    M4, J4 = M - M % 4, J - J % 4
    for m in range(0, M4, 4):
        for j in range(0, J4, 4):
            p = j * by_j + m * by_m
            a0, a1, a2, a3 = left[p], left[p + by_j], left[p + 2 * by_j], left[p + 3 * by_j]
            p += by_m
            b0, b1, b2, b3 = left[p], left[p + by_j], left[p + 2 * by_j], left[p + 3 * by_j]
            p += by_m
            c0, c1, c2, c3 = left[p], left[p + by_j], left[p + 2 * by_j], left[p + 3 * by_j]
            p += by_m
            d0, d1, d2, d3 = left[p], left[p + by_j], left[p + 2 * by_j], left[p + 3 * by_j]
            for n in range(N):
                x0, x1, x2, x3 = right[j, n], right[j + 1, n], right[j + 2, n], right[j + 3, n]
                out[m, n] += a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3
                out[m + 1, n] += b0 * x0 + b1 * x1 + b2 * x2 + b3 * x3
                out[m + 2, n] += c0 * x0 + c1 * x1 + c2 * x2 + c3 * x3
                out[m + 3, n] += d0 * x0 + d1 * x1 + d2 * x2 + d3 * x3
        for j in range(J4, J):
            p = j * by_j + m * by_m
            a0, b0, c0, d0 = left[p], left[p + by_m], left[p + 2 * by_m], left[p + 3 * by_m]
            for n in range(N):
                x0 = right[j, n]
                out[m, n] += a0 * x0
                out[m + 1, n] += b0 * x0
                out[m + 2, n] += c0 * x0
                out[m + 3, n] += d0 * x0
    for m in range(M4, M):
        for j in range(0, J4, 4):
            p = j * by_j + m * by_m
            a0, a1, a2, a3 = left[p], left[p + by_j], left[p + 2 * by_j], left[p + 3 * by_j]
            for n in range(N):
                out[m, n] += a0 * right[j, n] + a1 * right[j + 1, n] + a2 * right[j + 2, n] + a3 * right[j + 3, n]
        for j in range(J4, J):
            a0 = left[j * by_j + m * by_m]
            for n in range(N):
                out[m, n] += a0 * right[j, n]


@kernel(MEMORY, INT, INT, INT, INT, INT, INT, INT, INT, INT, INT)
def times(
    memory: Memory, out: int, by_out: int, left: int, by_j: int, by_m: int, right: int, by_right: int,
    M: int, N: int, J: int,
) -> None:  # fmt: skip
    """out[m, n] += the sum over j of left[j, m] right[j, n]; out, left and right are places in the memory.

    Rows of `out` and `right` are by_out and by_right apart. In `left`, j and m move by_j and by_m places. For few rows
    of few numbers: all sums are in registers, four rows at a time, or four parts of one row.
    """
    M4, J4 = M - M % 4, J - J % 4
    for n in range(0, N, WIDTH):
        wide = min(WIDTH, N - n)
        for i in range(0, M4, 4):
            p, q, r = out + i * by_out + n, left + i * by_m, right + n
            a, b = load(memory, p, wide), load(memory, p + by_out, wide)
            c, d = load(memory, p + 2 * by_out, wide), load(memory, p + 3 * by_out, wide)
            if wide == WIDTH:
                for j in range(J):
                    row, s = load_all(memory, r + j * by_right), q + j * by_j
                    a, b = more(a, memory[s], row), more(b, memory[s + by_m], row)
                    c, d = more(c, memory[s + 2 * by_m], row), more(d, memory[s + 3 * by_m], row)
            else:
                for j in range(J):
                    row, s = load(memory, r + j * by_right, wide), q + j * by_j
                    a, b = more(a, memory[s], row), more(b, memory[s + by_m], row)
                    c, d = more(c, memory[s + 2 * by_m], row), more(d, memory[s + 3 * by_m], row)
            store(memory, p, wide, a)
            store(memory, p + by_out, wide, b)
            store(memory, p + 2 * by_out, wide, c)
            store(memory, p + 3 * by_out, wide, d)
        for i in range(M4, M):
            p, q, r = out + i * by_out + n, left + i * by_m, right + n
            a, b, c, d = load(memory, p, wide), nothing(), nothing(), nothing()
            if wide == WIDTH:
                for j in range(0, J4, 4):
                    s, t = q + j * by_j, r + j * by_right
                    a = more(a, memory[s], load_all(memory, t))
                    b = more(b, memory[s + by_j], load_all(memory, t + by_right))
                    c = more(c, memory[s + 2 * by_j], load_all(memory, t + 2 * by_right))
                    d = more(d, memory[s + 3 * by_j], load_all(memory, t + 3 * by_right))
            else:
                for j in range(0, J4, 4):
                    s, t = q + j * by_j, r + j * by_right
                    a = more(a, memory[s], load(memory, t, wide))
                    b = more(b, memory[s + by_j], load(memory, t + by_right, wide))
                    c = more(c, memory[s + 2 * by_j], load(memory, t + 2 * by_right, wide))
                    d = more(d, memory[s + 3 * by_j], load(memory, t + 3 * by_right, wide))
            for j in range(J4, J):
                a = more(a, memory[q + j * by_j], load(memory, r + j * by_right, wide))
            store(memory, p, wide, plus(plus(a, b), plus(c, d)))


@kernel(MEMORY, INT, INT, INT, INT)
def copies(memory: Memory, to: int, row: int, width: int, count: int) -> None:
    """Write a row so many times, one after another."""
    for n in range(0, width, WIDTH):
        wide = min(WIDTH, width - n)
        value = load(memory, row + n, wide)
        for i in range(count):
            store(memory, to + i * width + n, wide, value)


@kernel(MEMORY, INT, INT, INT, INT, INT)
def add_rows(memory: Memory, to: int, rows: int, apart: int, width: int, count: int) -> None:
    """Add all rows to one."""
    for n in range(0, width, WIDTH):
        wide = min(WIDTH, width - n)
        total = load(memory, to + n, wide)
        for i in range(count):
            total = plus(total, load(memory, rows + i * apart + n, wide))
        store(memory, to + n, wide, total)


@kernel(MEMORY, INT, INT)
def clear(memory: Memory, at: int, count: int) -> None:
    for i in range(count):
        memory[at + i] = np.float32(0.0)


@kernel(MEMORY, INT, INT, INT, INT, INT)
def transpose(memory: Memory, to: int, matrix: int, apart: int, M: int, N: int) -> None:
    """Write (M, N), whose rows are so far apart, as (N, M)."""
    for n in range(N):
        for m in range(M):
            memory[to + n * M + m] = memory[matrix + m * apart + n]


@inlined(FLOAT)
def _exp(value: Any) -> Any:
    """e to the power of a value, to 3e-7 of it: 2^n by its bits, the rest by a polynomial of degree 6.

    Values below -87 give 1e-38, and values above 88 give 1.6e38.
    """
    x = min(np.float32(88.0), max(np.float32(-87.0), value))
    whole = np.floor(x * np.float32(1.4426950408889634) + np.float32(0.5))
    r = x - whole * np.float32(0.693359375)
    r -= whole * np.float32(-2.12194440e-4)
    p = np.float32(1.0 / 720.0)
    p = p * r + np.float32(1.0 / 120.0)
    p = p * r + np.float32(1.0 / 24.0)
    p = p * r + np.float32(1.0 / 6.0)
    p = p * r + np.float32(0.5)
    p = p * r + np.float32(1.0)
    p = p * r + np.float32(1.0)
    return p * as_float(np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)))


@inlined(FLOAT)
def tanh_of(v: Any) -> Any:
    """tanh of a value, to 2e-7 of it, from e^(-2|x|)."""
    size = min(np.float32(20.0), abs(v))
    x = np.float32(-2.0) * size
    whole = np.floor(x * np.float32(1.4426950408889634) + np.float32(0.5))
    r = x - whole * np.float32(0.693359375)
    r -= whole * np.float32(-2.12194440e-4)
    p = np.float32(1.0 / 5040.0)
    p = p * r + np.float32(1.0 / 720.0)
    p = p * r + np.float32(1.0 / 120.0)
    p = p * r + np.float32(1.0 / 24.0)
    p = p * r + np.float32(1.0 / 6.0)
    p = p * r + np.float32(0.5)
    p = p * r + np.float32(1.0)
    # tanh = (1 - e) / (1 + e); 1 - e without cancellation: (1 - 2^n) - 2^n (e^r - 1)
    two = as_float(np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)))
    less = (np.float32(1.0) - two) - two * (p * r)
    out = less / (np.float32(2.0) - less)
    out = np.copysign(out, v)
    return out if v == v else v


@pointwise(MEMORY, INT, INT)
def exps(memory: Memory, at: int, count: int) -> None:
    """e to the power of each value, in place."""
    for i in range(count):
        memory[at + i] = _exp(memory[at + i])


@pointwise(MEMORY, INT, INT)
def tanhs(memory: Memory, at: int, count: int) -> None:
    """tanh of each value, in place."""
    for i in range(count):
        memory[at + i] = tanh_of(memory[at + i])


@kernel(INT, MEMORY, INT, INT, INT, ROW)
def slope(loss: int, memory: Memory, z: int, classes: int, label: int, values: Array) -> None:
    """Replace a sample's outputs by the derivative of its loss."""
    if loss == HUBER:  # the mean over the outputs
        for o in range(classes):
            gap = min(np.float32(1.0), max(np.float32(-1.0), memory[z + o] - values[o]))
            memory[z + o] = gap / np.float32(classes)
    elif loss == HINGE:  # max(0, 1 + best wrong score - right score)
        best, top = label, memory[z + label]
        for o in range(classes):
            margin = memory[z + o] + np.float32(1.0)
            if o != label and (margin > top or (margin == top and o < best)):
                best, top = o, margin
        clear(memory, z, classes)
        memory[z + best] += np.float32(1.0)
        memory[z + label] -= np.float32(1.0)
    else:
        top = memory[z]
        for o in range(1, classes):
            top = max(top, memory[z + o])
        for o in range(classes):
            memory[z + o] -= top
        exps(memory, z, classes)
        total = np.float32(0.0)
        for o in range(classes):
            total += memory[z + o]
        for o in range(classes):
            memory[z + o] /= total
        memory[z + label] -= np.float32(1.0)
