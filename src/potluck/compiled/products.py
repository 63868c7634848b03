"""Products of matrices that lie in one piece of memory. M, N and J count rows, columns and what is summed over.

With 512-bit vectors a tile has eight rows of two vectors. Its sixteen sums stay in registers, and they keep the
processor busy while each waits for its last step. Where vectors are shorter, a tile is one vector wide.
"""

from __future__ import annotations

from typing import Any

from potluck.compiled.jit import INT, MEMORY, kernel
from potluck.compiled.tiles import tile, turn
from potluck.compiled.vectors import LONG, WIDTH, load, more, nothing, plus, store

Memory = Any  # within a kernel: memory of float32
EIGHT_WIDE, FOUR_WIDE = tile(8, 2, False), tile(4, 2, False)
EIGHT, FOUR = tile(8, 1, False), tile(4, 1, False)
EIGHT_PART, FOUR_PART = tile(8, 1, True), tile(4, 1, True)
PAIR = 2 * WIDTH


@kernel(MEMORY, INT, INT, INT, INT, INT, INT, INT, INT, INT, INT)
def _row(
    m: Memory, out: int, begin: int, left: int, by_o: int, by_j: int, right: int, by_right: int, N: int, outer: int,
    J: int,
) -> None:  # fmt: skip
    """One row of a product: four sums at a time, as one alone would wait for each of its steps."""
    J4 = J - J % 4
    for n in range(0, N, WIDTH):
        wide = min(WIDTH, N - n)
        a, b, c, d = load(m, begin + n, wide), nothing(), nothing(), nothing()
        for o in range(outer):
            q, r = left + o * by_o, right + o * J * by_right + n
            for j in range(0, J4, 4):
                s, t = q + j * by_j, r + j * by_right
                a = more(a, m[s], load(m, t, wide))
                b = more(b, m[s + by_j], load(m, t + by_right, wide))
                c = more(c, m[s + 2 * by_j], load(m, t + 2 * by_right, wide))
                d = more(d, m[s + 3 * by_j], load(m, t + 3 * by_right, wide))
            for j in range(J4, J):
                a = more(a, m[q + j * by_j], load(m, r + j * by_right, wide))
        store(m, out + n, wide, plus(plus(a, b), plus(c, d)))


@kernel(MEMORY, INT, INT, INT, INT, INT, INT, INT, INT, INT, INT, INT, INT, INT, INT)
def product(
    m: Memory, out: int, by_out: int, begin: int, by_begin: int, left: int, by_o: int, by_j: int, by_m: int, right: int,
    by_right: int, M: int, N: int, outer: int, J: int,
) -> None:  # fmt: skip
    """out[m, n] = begin[m, n] + the sum over o and j of left[o, j, m] right[o J + j, n]; all are places in the memory.

    Rows of `out`, `begin` and `right` are by_out, by_begin and by_right apart; by_begin may be 0, and `begin` may be
    `out`. In `left`, o, j and m move by_o, by_j and by_m places: its rows may be windows of an image.
    """
    M4, M8 = M - M % 4, M - M % 8
    N1 = N - N % WIDTH
    N2 = N - N % PAIR if LONG else 0
    for n in range(0, N2, PAIR):
        for i in range(0, M8, 8):
            EIGHT_WIDE(
                m, out + i * by_out + n, by_out, begin + i * by_begin + n, by_begin, left + i * by_m, by_o, by_j, by_m,
                right + n, by_right, outer, J, 0,
            )  # fmt: skip
        if M4 > M8:
            FOUR_WIDE(
                m, out + M8 * by_out + n, by_out, begin + M8 * by_begin + n, by_begin, left + M8 * by_m, by_o, by_j,
                by_m, right + n, by_right, outer, J, 0,
            )  # fmt: skip
    for n in range(N2, N1, WIDTH):
        for i in range(0, M8, 8):
            EIGHT(
                m, out + i * by_out + n, by_out, begin + i * by_begin + n, by_begin, left + i * by_m, by_o, by_j, by_m,
                right + n, by_right, outer, J, 0,
            )  # fmt: skip
        if M4 > M8:
            FOUR(
                m, out + M8 * by_out + n, by_out, begin + M8 * by_begin + n, by_begin, left + M8 * by_m, by_o, by_j,
                by_m, right + n, by_right, outer, J, 0,
            )  # fmt: skip
    if N > N1:
        for i in range(0, M8, 8):
            EIGHT_PART(
                m, out + i * by_out + N1, by_out, begin + i * by_begin + N1, by_begin, left + i * by_m, by_o, by_j,
                by_m, right + N1, by_right, outer, J, N - N1,
            )  # fmt: skip
        if M4 > M8:
            FOUR_PART(
                m, out + M8 * by_out + N1, by_out, begin + M8 * by_begin + N1, by_begin, left + M8 * by_m, by_o, by_j,
                by_m, right + N1, by_right, outer, J, N - N1,
            )  # fmt: skip
    for i in range(M4, M):
        _row(m, out + i * by_out, begin + i * by_begin, left + i * by_m, by_o, by_j, right, by_right, N, outer, J)


@kernel(MEMORY, INT, INT, INT, INT, INT, INT, INT, INT, INT, INT)
def times(
    m: Memory, out: int, by_out: int, left: int, by_j: int, by_m: int, right: int, by_right: int, M: int, N: int, J: int
) -> None:
    """out[m, n] += the sum over j of left[j, m] right[j, n], as `product` has it."""
    product(m, out, by_out, out, by_out, left, 0, by_j, by_m, right, by_right, M, N, 1, J)


@kernel(MEMORY, INT, INT, INT, INT, INT, INT)
def transposed(m: Memory, to: int, by_to: int, matrix: int, by_matrix: int, M: int, N: int) -> None:
    """Write (M, N), whose rows are by_matrix apart, as (N, M), whose rows are by_to apart."""
    if M < WIDTH or N < WIDTH:
        for i in range(M):
            for n in range(N):
                m[to + n * by_to + i] = m[matrix + i * by_matrix + n]
        return
    for block in range(0, M, WIDTH):
        i = min(block, M - WIDTH)  # the last square may cover numbers of the one before: it writes the same
        for square in range(0, N, WIDTH):
            n = min(square, N - WIDTH)
            turn(m, to + n * by_to + i, by_to, matrix + i * by_matrix + n, by_matrix)
