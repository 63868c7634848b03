"""Gradient descent of dense networks, one client after another: its weights, samples and activations stay in cache.

The same arithmetic as `potluck._fused`, with the same two forms of the first layer. What a client ends with depends on
its own samples alone: not on the others in the stack, nor on the padding, nor on the number of threads.

L layers with J inputs and M outputs. Of each, index 0 is the weight (M, J) and index 1 the bias. Address 0 stands for a
tensor that is not there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray

from potluck.compiled.jit import CUBE, FLAG, FLOAT, INT, PLACES, ROW, ROWS, STEPS, TABLE, kernel, pointer
from potluck.compiled.loops import HUBER, add_product, dots, slope, tanh_of

Array = Any  # a float32 array, and in annotations below Any is a float32
LABELS = TABLE
RELU, TANH = 1, 2


@kernel(INT, ROWS, INT, INT)
def _activate(kind: int, z: Array, B: int, M: int) -> None:
    if kind == RELU:
        for b in range(B):
            row = z[b]
            for o in range(M):
                row[o] = max(row[o], np.float32(0.0))
    elif kind == TANH:
        for b in range(B):
            row = z[b]
            for o in range(M):
                row[o] = tanh_of(row[o])


@kernel(INT, ROWS, ROWS, INT, INT)
def _through(kind: int, d: Array, z: Array, B: int, M: int) -> None:
    """The gradient before an activation, from the activation's output."""
    if kind == RELU:
        for b in range(B):
            to, out = d[b], z[b]
            for o in range(M):
                to[o] = to[o] if out[o] > np.float32(0.0) else np.float32(0.0)
    elif kind == TANH:
        for b in range(B):
            to, out = d[b], z[b]
            for o in range(M):
                to[o] *= np.float32(1.0) - out[o] * out[o]


@kernel(ROW, INT, FLOAT, ROW, FLOAT, FLAG)
def _scaled(value: Array, count: int, by: Any, shift: Array, times: Any, shifted: bool) -> None:
    """value = by value + times shift."""
    if shifted:
        for i in range(count):
            value[i] = by * value[i] + times * shift[i]
    else:
        for i in range(count):
            value[i] *= by


@kernel(ROW, INT, FLOAT, ROW)
def _add(value: Array, count: int, by: Any, other: Array) -> None:
    for i in range(count):
        value[i] += by * other[i]


@kernel("float64", "float64", INT, INT, INT, FLAG, FLAG)
def is_dual(rows: Any, visits: Any, J: int, M: int, steps: int, shifted: bool, pulled: bool) -> bool:
    """Whether the first layer takes less time without its weights (`potluck._first_layer.Dual`).

    Products are counted. A pull touches every weight in every step, which takes as long as eight products.
    """
    direct = (2.0 * visits + 8.0 * steps * pulled) * J * M
    dual = (2.0 + shifted) * rows * J * M + rows * rows * J / 2 + 1.5 * visits * rows * M
    return bool(dual < 0.9 * direct)


@kernel(
    INT, INT, CUBE, FLAG, LABELS, CUBE, STEPS, CUBE, ROW,
    PLACES, PLACES, INT, TABLE, TABLE, TABLE, TABLE,
    "float64", FLAG, ROW, ROW, TABLE, TABLE, INT,
)  # fmt: skip
def train(
    begin: int, end: int, x: Array, own_x: bool, labels: Array, values: Array, rows: Array, counts: Array, lr: Array,
    sizes: Array, acts: Array, loss: int, moves: Array, given: Array, own: Array, out: Array,
    momentum: Any, pulled: bool, scale: Array, times: Array, shift: Array, own_shift: Array, form: int,
) -> None:  # fmt: skip
    """Train the clients from `begin` to `end`.

    K clients, N samples, S steps, B samples a step: x (K or 1, N, F), labels (K, N), values (K, N, M), rows
    and counts (K, S, B), lr, scale and times (K), sizes (L + 1), acts (L). Moves and the addresses given, out and shift
    are (L, 2); own and own_shift are 1 where each client has its own.
    `form` of the first layer: 0 direct, 1 dual, 2 by `is_dual`.
    """
    L, S, B, N, F = len(acts), rows.shape[1], rows.shape[2], x.shape[1], x.shape[2]
    widest = sizes[1:].max()
    H, C = sizes[1], sizes[L]
    shifted = shift[0, 0] != 0 or shift[L - 1, 0] != 0
    z = np.empty((L, B, widest), np.float32)  # outputs of the layers
    d = np.empty((L, B, widest), np.float32)  # the gradients before their activations
    gradients = pointer(d.ctypes.data)
    batch = np.empty((B, F), np.float32)
    picked = np.empty(B, np.int64)
    counted = np.empty(B, np.float32)
    heavy = momentum != 0.0
    offsets = np.zeros((L, 2), np.int64)
    places = 0
    for i in range(L):
        offsets[i, 0] = places
        offsets[i, 1] = places + sizes[i] * sizes[i + 1]
        places = offsets[i, 1] + sizes[i + 1]
    speed = np.empty(places if heavy else 1, np.float32)
    none = np.empty(1, np.float32)
    start = far = gram = mix = near = np.empty((1, 1), np.float32)
    roomy = False

    for k in range(begin, end):
        xs = x[k if own_x else 0]
        used, visits = 0, 0.0
        for s in range(S):
            for b in range(B):
                if counts[k, s, b] > 0.0:
                    used = max(used, rows[k, s, b] + 1)
                    visits += 1.0
        first_moves = moves[0, 0] != 0
        dual = form == 1 or (form == 2 and is_dual(used, visits, F, H, S, shifted, pulled))
        dual = dual and first_moves and not heavy and used > 0
        for i in range(L):
            for j in range(2):
                if moves[i, j] and given[i, j] and not (dual and i == 0 and j == 0):
                    count = sizes[i + 1] * (sizes[i] if j == 0 else 1)
                    new = carray(pointer(out[i, j] + 4 * count * k), (count,))
                    new[:] = carray(pointer(given[i, j] + 4 * count * k * own[i, j]), (count,))
        if heavy:
            speed[:] = np.float32(0.0)
        kept, drift = np.float32(1.0), np.float32(0.0)
        if dual:
            if not roomy:
                start, far = np.empty((N, H), np.float32), np.empty((N if shifted else 1, H), np.float32)
                gram, mix, near = (
                    np.empty((N, N), np.float32),
                    np.empty((N, H), np.float32),
                    np.empty((B, N), np.float32),
                )
                roomy = True
            dots(start, xs, carray(pointer(given[0, 0] + 4 * H * F * k * own[0, 0]), (H, F)), used, H, F)
            if shifted:
                dots(far, xs, carray(pointer(shift[0, 0] + 4 * H * F * k * own_shift[0, 0]), (H, F)), used, H, F)
            for m in range(0, used, 4):  # the lower triangle, four rows at a time
                width = min(used, m + 4)
                dots(gram[m:], xs[m:], xs, width - m, width, F)
            for m in range(used):
                for n in range(m):
                    gram[n, m] = gram[m, n]
            mix[:used] = np.float32(0.0)

        for s in range(S):
            n, total = 0, np.float32(0.0)
            for b in range(B):
                if counts[k, s, b] > 0.0:
                    picked[n], counted[n] = rows[k, s, b], counts[k, s, b]
                    total += counts[k, s, b]
                    n += 1
            if n == 0:
                continue
            total = max(total, np.float32(1.0))
            rate = np.float32(lr[k])

            # forward
            if dual:
                for b in range(n):
                    near[b, :used] = gram[picked[b], :used]
                    row = z[0, b]
                    row[:H] = start[picked[b]]
                    if pulled:
                        _scaled(row, H, kept, far[picked[b] if shifted else 0], drift, shifted)
                add_product(z[0], near.reshape(-1), 1, N, mix, n, H, used)
            else:
                for b in range(n):
                    batch[b] = xs[picked[b]]
            for i in range(L):
                J, M = sizes[i], sizes[i + 1]
                if i > 0 or not dual:
                    base = out[i, 0] + 4 * J * M * k if moves[i, 0] else given[i, 0] + 4 * J * M * k * own[i, 0]
                    dots(
                        z[i],
                        batch if i == 0 else z[i - 1],
                        carray(pointer(base), (M, J)),
                        n,
                        M,
                        J,
                    )
                if given[i, 1]:
                    base = out[i, 1] + 4 * M * k if moves[i, 1] else given[i, 1] + 4 * M * k * own[i, 1]
                    bias = carray(pointer(base), (M,))
                    for b in range(n):
                        _add(z[i, b], M, np.float32(1.0), bias)
                _activate(acts[i], z[i], n, M)

            # backward; without momentum the loss gradient is scaled by -lr at once, so every product is the step to add
            for b in range(n):
                part = counted[b] / total * (np.float32(1.0) if heavy else -rate)
                to = d[L - 1, b]
                to[:C] = z[L - 1, b, :C]
                last = ((L - 1) * B + b) * widest
                slope(loss, gradients, last, C, labels[k, picked[b]], values[k, picked[b] if loss == HUBER else 0])
                for o in range(C):
                    to[o] *= part
            for i in range(L - 1, 0, -1):
                J, M = sizes[i], sizes[i + 1]
                base = out[i, 0] + 4 * J * M * k if moves[i, 0] else given[i, 0] + 4 * J * M * k * own[i, 0]
                for b in range(n):
                    d[i - 1, b, :J] = np.float32(0.0)
                add_product(d[i - 1], d[i].reshape(-1), 1, widest, carray(pointer(base), (M, J)), n, J, M)
                _through(acts[i - 1], d[i - 1], z[i - 1], n, J)

            # the step
            for i in range(L):
                J, M = sizes[i], sizes[i + 1]
                for j in range(2):
                    if not moves[i, j] or not given[i, j]:
                        continue
                    if dual and i == 0 and j == 0:
                        if pulled:
                            fade = np.float32(1.0) - rate * scale[k]
                            kept *= fade
                            drift = drift * fade - rate * times[k]
                            for m in range(used):
                                _scaled(mix[m], H, fade, none, np.float32(0.0), False)
                        for b in range(n):
                            _add(mix[picked[b]], H, np.float32(1.0), d[0, b])
                        continue
                    count = M * (J if j == 0 else 1)
                    value = carray(pointer(out[i, j] + 4 * count * k), (count,))
                    push = none
                    if shifted:
                        push = carray(pointer(shift[i, j] + 4 * count * k * own_shift[i, j]), (count,))
                    into = value
                    if heavy:  # v = momentum v + scale w + times shift + gradient; w -= lr v
                        into = speed[offsets[i, j] : offsets[i, j] + count]
                        if pulled:
                            _scaled(into, count, np.float32(momentum), push, times[k], shifted)
                            _add(into, count, scale[k], value)
                        else:
                            _scaled(into, count, np.float32(momentum), none, np.float32(0.0), False)
                    elif pulled:
                        _scaled(into, count, np.float32(1.0) - rate * scale[k], push, -rate * times[k], shifted)
                    if j == 0:
                        before = batch if i == 0 else z[i - 1]
                        add_product(into.reshape((M, J)), d[i].reshape(-1), widest, 1, before, M, J, n)
                    else:
                        for b in range(n):
                            _add(into, M, np.float32(1.0), d[i, b])
                    if heavy:
                        _add(value, count, -rate, into)

        if dual:
            weight = carray(pointer(out[0, 0] + 4 * H * F * k), (H, F))
            flat = weight.reshape(-1)
            flat[:] = carray(pointer(given[0, 0] + 4 * H * F * k * own[0, 0]), (H * F,))
            if pulled:
                push = none
                if shifted:
                    push = carray(pointer(shift[0, 0] + 4 * H * F * k * own_shift[0, 0]), (H * F,))
                _scaled(flat, H * F, kept, push, drift, shifted)
            add_product(weight, mix.reshape(-1), H, 1, xs, H, F, used)
