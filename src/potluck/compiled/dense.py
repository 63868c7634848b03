"""Gradient descent of dense networks, one client after another: its weights, samples and activations stay in cache.

The same arithmetic as `potluck._fused`, with the same two forms of the first layer. What a client ends with depends on
its own samples alone: not on the others in the stack, nor on the padding, nor on the number of threads.

L layers with J inputs and M outputs. Of each, index 0 is the weight (M, J) and index 1 the bias. Address 0 stands for a
tensor that is not there. Everything is in one memory: a place is a distance from the scratch memory, in numbers. A
forward pass reads weights transposed, so that its sums run along outputs. The first layer stays so while it trains.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from potluck.compiled.jit import CUBE, FLAG, FLOAT, INT, MEMORY, PLACES, ROW, STEPS, TABLE, kernel, pointer
from potluck.compiled.layers import activate, copied, slopes, through
from potluck.compiled.loops import add_rows, clear
from potluck.compiled.products import product, transposed

Array = Any  # a float32 array, and in annotations below Any is a float32
Memory = Any
LABELS = TABLE
ZERO, ONE = np.float32(0.0), np.float32(1.0)
PLENTY = np.float32(1e24)  # a squared norm that no check minds (`wire.gate.HUGE`)


@kernel(MEMORY, INT, INT, FLOAT, INT, FLOAT, FLAG)
def _scaled(m: Memory, at: int, count: int, by: Any, shift: int, times: Any, shifted: bool) -> None:
    """value = by value + times shift."""
    if shifted:
        for i in range(count):
            m[at + i] = by * m[at + i] + times * m[shift + i]
    else:
        for i in range(count):
            m[at + i] *= by


@kernel(MEMORY, INT, INT, FLOAT, INT)
def _add(m: Memory, at: int, count: int, by: Any, other: int) -> None:
    for i in range(count):
        m[at + i] += by * m[other + i]


@kernel(MEMORY, INT, INT)
def _square(m: Memory, at: int, count: int) -> Any:
    total = ZERO
    for i in range(count):
        total += m[at + i] * m[at + i]
    return total


@kernel(MEMORY, FLOAT, INT, INT, INT, INT, INT)
def _at_most(m: Memory, before: Any, mix: int, gram: int, N: int, used: int, H: int) -> Any:
    """What the squared norm of W + D^T X is at most, from those of the three: samples have theirs in X X^T.

    A pass over new weights takes twenty times as long, and only ever tells that they are not enormous.
    """
    samples = np.float64(0.0)
    for i in range(used):
        samples += m[gram + i * N + i]
    change = np.sqrt(np.float64(_square(m, mix, used * H)) * samples)
    whole = np.sqrt(np.float64(before)) + change
    return np.float32(whole * whole)


@kernel("float64", "float64", INT, INT, INT, FLAG, FLAG)
def is_dual(rows: Any, visits: Any, J: int, M: int, steps: int, shifted: bool, pulled: bool) -> bool:
    """Whether the first layer takes less time without its weights (`potluck._first_layer.Dual`).

    Products are counted. A pull touches every weight in every step, which takes as long as eight products.
    """
    direct = (2.0 * visits + 8.0 * steps * pulled) * J * M
    dual = (2.0 + shifted) * rows * J * M + rows * rows * J + 1.5 * visits * rows * M
    return bool(dual < 0.9 * direct)


@kernel(PLACES, INT)
def _room(used: Array, count: int) -> Any:
    """The place of so many numbers in the scratch memory, at the beginning of a cache line."""
    here = used[0]
    used[0] += (count + 15) // 16 * 16
    return here


@kernel(MEMORY, INT, INT, INT, INT, INT, INT, INT)
def _grams(m: Memory, gram: int, flipped: int, xs: int, zeros: int, used: int, N: int, F: int) -> None:
    """X X^T of the first `used` samples; rows are N apart."""
    transposed(m, flipped, N, xs, F, used, F)
    for first in range(0, used, 16):  # the lower triangle, some rows at a time
        last = min(used, first + 16)
        product(
            m, gram + first * N, N, zeros, 0, xs + first * F, 0, 1, F, flipped, N, last - first, last, 1, F
        )  # fmt: skip
    for i in range(used):
        for j in range(i + 1, used):
            m[gram + i * N + j] = m[gram + j * N + i]


@kernel(
    INT, INT, CUBE, FLAG, LABELS, CUBE, STEPS, CUBE, ROW,
    PLACES, PLACES, INT, TABLE, TABLE, TABLE, TABLE,
    "float64", FLAG, ROW, ROW, TABLE, TABLE, INT, CUBE, INT, PLACES,
)  # fmt: skip
def train(
    begin: int, end: int, x: Array, own_x: bool, labels: Array, values: Array, rows: Array, counts: Array, lr: Array,
    sizes: Array, acts: Array, loss: int, moves: Array, given: Array, own: Array, out: Array,
    momentum: Any, pulled: bool, scale: Array, times: Array, shift: Array, own_shift: Array, form: int,
    squares: Array, grams: int, rows_known: Array,
) -> None:  # fmt: skip
    """Train the clients from `begin` to `end`.

    K clients, N samples, S steps, B samples a step: x (K or 1, N, F), labels (K, N), values (K, N, M), rows
    and counts (K, S, B), lr, scale and times (K), sizes (L + 1), acts (L). Moves and the addresses given, out and shift
    are (L, 2); own and own_shift are 1 where each client has its own.
    `form` of the first layer: 0 direct, 1 dual, 2 by `is_dual`. Squared norms of what moved, or bounds of them, go to
    squares (L, 2, K).
    `grams` is the address of a memory (K, N, N) that outlives this call: products of samples, of the first rows_known
    samples of each client. They are the same in every round.
    """
    L, S, B, N, F = len(acts), rows.shape[1], rows.shape[2], x.shape[1], x.shape[2]
    H, C = sizes[1], sizes[L]
    shifted = shift[0, 0] != 0 or shift[L - 1, 0] != 0
    heavy = momentum != 0.0
    room = np.zeros(1, np.int64)
    zeros, batch = _room(room, max(sizes.max(), N)), _room(room, B * F)
    z, d, turned = np.zeros(L, np.int64), np.zeros(L, np.int64), np.zeros(L, np.int64)
    speed, value, push = np.zeros((L, 2), np.int64), np.zeros((L, 2), np.int64), np.zeros((L, 2), np.int64)
    for i in range(L):
        J, M = sizes[i], sizes[i + 1]
        z[i], d[i], turned[i] = _room(room, B * M), _room(room, B * M), _room(room, J * M)
        if heavy:
            speed[i, 0], speed[i, 1] = _room(room, J * M), _room(room, M)
    turned_shift = _room(room, F * H if shifted else 0)
    maybe = form > 0 and moves[0, 0] != 0 and not heavy
    start, far = _room(room, N * H if maybe else 0), _room(room, N * H if maybe and shifted else 0)
    gram, mix = _room(room, N * N if maybe and grams == 0 else 0), _room(room, N * H if maybe else 0)
    near, flipped = _room(room, B * N if maybe else 0), _room(room, F * N if maybe else 0)
    memory = np.empty(room[0] + 16, np.float32)
    base = (memory.ctypes.data + 63) // 64 * 64
    m = pointer(base)
    clear(m, zeros, max(sizes.max(), N))
    picked, counted = np.empty(B, np.int64), np.empty(B, np.float32)
    known = False  # whether the weights that all clients share stand transposed
    unlike, before = True, ZERO  # whether the squared norm of these is not known yet, and what it is

    for k in range(begin, end):
        xs = (x.ctypes.data + 4 * N * F * k * own_x - base) // 4
        used, visits = 0, 0.0
        for s in range(S):
            for b in range(B):
                if counts[k, s, b] > ZERO:
                    used = max(used, rows[k, s, b] + 1)
                    visits += 1.0
        dual = form == 1 or (form == 2 and is_dual(used, visits, F, H, S, shifted, pulled))
        dual = dual and maybe and used > 0
        first = (given[0, 0] + 4 * H * F * k * own[0, 0] - base) // 4
        for i in range(L):
            for j in range(2):
                count = sizes[i + 1] * (sizes[i] if j == 0 else 1)
                value[i, j] = (given[i, j] + 4 * count * k * own[i, j] - base) // 4
                if shifted:
                    push[i, j] = (shift[i, j] + 4 * count * k * own_shift[i, j] - base) // 4
                if moves[i, j] and given[i, j] and (i > 0 or j > 0):
                    new = (out[i, j] + 4 * count * k - base) // 4
                    copied(m, new, value[i, j], count)
                    value[i, j] = new
                if heavy:
                    clear(m, speed[i, j], count)
        if not known or own[0, 0] or not dual:
            transposed(m, turned[0], H, first, F, H, F)
            known = dual
        kept, drift, limit = ONE, ZERO, np.float32(np.inf)
        if dual:
            product(m, start, H, zeros, 0, xs, 0, 1, F, turned[0], H, used, H, 1, F)
            if shifted:
                transposed(m, turned_shift, H, push[0, 0], F, H, F)
                product(m, far, H, zeros, 0, xs, 0, 1, F, turned_shift, H, used, H, 1, F)
            if grams != 0:
                gram = (grams + 4 * N * N * k - base) // 4
            if grams == 0 or rows_known[k] != used:
                _grams(m, gram, flipped, xs, zeros, used, N, F)
                rows_known[k] = used
            clear(m, mix, used * H)
        else:
            value[0, 0] = turned[0]
            if shifted:
                transposed(m, turned_shift, H, push[0, 0], F, H, F)
                push[0, 0] = turned_shift
        for i in range(1, L):
            transposed(m, turned[i], sizes[i + 1], value[i, 0], sizes[i], sizes[i + 1], sizes[i])

        for s in range(S):
            n, total = 0, ZERO
            for b in range(B):
                if counts[k, s, b] > ZERO:
                    picked[n], counted[n] = rows[k, s, b], counts[k, s, b]
                    total += counts[k, s, b]
                    n += 1
            if n == 0:
                continue
            total = max(total, ONE)
            rate = np.float32(lr[k])

            # forward
            for b in range(n):
                if dual:
                    copied(m, near + b * N, gram + picked[b] * N, used)
                    copied(m, z[0] + b * H, start + picked[b] * H, H)
                    if pulled:
                        _scaled(m, z[0] + b * H, H, kept, far + picked[b] * H, drift, shifted)
                else:
                    copied(m, batch + b * F, xs + picked[b] * F, F)
            if dual:
                product(m, z[0], H, z[0], H, near, 0, 1, N, mix, H, n, H, 1, used)
                if given[0, 1]:
                    for b in range(n):
                        _add(m, z[0] + b * H, H, ONE, value[0, 1])
                activate(acts[0], m, z[0], n * H)
            for i in range(1 if dual else 0, L):
                J, M = sizes[i], sizes[i + 1]
                bias = value[i, 1] if given[i, 1] else zeros
                product(m, z[i], M, bias, 0, z[i - 1] if i > 0 else batch, 0, 1, J, turned[i], M, n, M, 1, J)
                activate(acts[i], m, z[i], n * M)

            # backward; without momentum the loss gradient is scaled by -lr at once, so every product is the step to add
            by = (ONE if heavy else -rate) / total
            slopes(loss, m, d[L - 1], z[L - 1], n, C, labels[k], values[k], picked, counted, by)
            for i in range(L - 1, 0, -1):
                J, M = sizes[i], sizes[i + 1]
                product(m, d[i - 1], J, zeros, 0, d[i], 0, 1, M, value[i, 0], J, n, J, 1, M)
                through(acts[i - 1], m, d[i - 1], z[i - 1], n * J)

            # the step
            for i in range(L):
                J, M = sizes[i], sizes[i + 1]
                for j in range(2):
                    if not moves[i, j] or not given[i, j]:
                        continue
                    if dual and i == 0 and j == 0:
                        if pulled:
                            fade = ONE - rate * scale[k]
                            kept *= fade
                            drift = drift * fade - rate * times[k]
                            _scaled(m, mix, used * H, fade, zeros, ZERO, False)
                        for b in range(n):
                            _add(m, mix + picked[b] * H, H, ONE, d[0] + b * H)
                        continue
                    count, into = M * (J if j == 0 else 1), value[i, j]
                    if heavy:  # v = momentum v + scale w + times shift + gradient; w -= lr v
                        into = speed[i, j]
                        _scaled(m, into, count, np.float32(momentum), push[i, j], times[k], pulled and shifted)
                        if pulled:
                            _add(m, into, count, scale[k], value[i, j])
                    elif pulled:
                        _scaled(m, into, count, ONE - rate * scale[k], push[i, j], -rate * times[k], shifted)
                    if j == 1:
                        add_rows(m, into, d[i], M, M, n)
                    elif i == 0:
                        product(m, into, M, into, M, batch, 0, F, 1, d[0], M, J, M, 1, n)
                    else:
                        product(m, into, J, into, J, d[i], 0, M, 1, z[i - 1], J, M, J, 1, n)
                    if heavy:
                        _add(m, value[i, j], count, -rate, into)
                    if j == 0 and i > 0:
                        transposed(m, turned[i], M, value[i, 0], J, M, J)

        if moves[0, 0]:
            new = (out[0, 0] + 4 * H * F * k - base) // 4
            if dual:
                if not pulled:
                    if unlike or own[0, 0]:
                        before, unlike = _square(m, first, H * F), False
                    limit = _at_most(m, before, mix, gram, N, used, H)
                if pulled:
                    copied(m, new, first, H * F)
                    _scaled(m, new, H * F, kept, push[0, 0], drift, shifted)
                    first = new
                product(m, new, F, first, F, mix, 0, H, 1, xs, F, H, F, 1, used)
            else:
                transposed(m, new, F, turned[0], H, F, H)
            value[0, 0] = new
        for i in range(L):
            for j in range(2):
                if i + j == 0 and limit < PLENTY:
                    squares[0, 0, k] = limit
                elif moves[i, j] and given[i, j]:
                    squares[i, j, k] = _square(m, value[i, j], sizes[i + 1] * (sizes[i] if j == 0 else 1))
    memory[0] = ZERO  # its last use: it must live until here
