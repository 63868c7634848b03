"""Small products and functions that vectorise well. M, N, J and B count rows, columns and what is summed over."""

from __future__ import annotations

from typing import Any

import numpy as np

from potluck.compiled.jit import INT, ROW, ROWS, as_float, kernel, pointwise

Array = Any  # within a kernel: a float32 array


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


@pointwise(ROW, INT)
def exp_(value: Array, count: int) -> None:
    """e to the power of each value, in place, to 3e-7 of it: 2^n by its bits, the rest by a polynomial of degree 6.

    Values below -87 give 1e-38, and values above 88 give 1.6e38.
    """
    for i in range(count):
        x = min(np.float32(88.0), max(np.float32(-87.0), value[i]))
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
        value[i] = p * as_float(np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)))


@pointwise(ROW, INT)
def tanh_(value: Array, count: int) -> None:
    """tanh of each value, in place, to 2e-7 of it, from e^(-2|x|)."""
    for i in range(count):
        v = value[i]
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
        value[i] = out if v == v else v
