"""Many steps of Adam on the kernels between two models in one call: FedConv's tuning of convolutional networks.

A step makes the network of the kernels (`planes`), takes its gradient on a mini-batch (`convolved`), and takes that
back through the kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from potluck.compiled.blocks import COUT
from potluck.compiled.convolved import gradient, picking, ready
from potluck.compiled.jit import CUBE, FLAG, INT, PLACES, ROW, ROWS, STEPS, TABLE, kernel, pointer
from potluck.compiled.loops import clear
from potluck.compiled.places import GRADIENT, PARAMETERS, WEIGHTS
from potluck.compiled.planes import adam, making, unmaking

Array = Any  # a float32 array
ZERO = np.float32(0.0)


@kernel(
    INT, INT, ROW, PLACES, TABLE, INT, "float32[:, :, :, ::1]", FLAG, FLAG, TABLE, CUBE, STEPS, CUBE,
    PLACES, PLACES, PLACES, PLACES, PLACES, INT, INT, INT,
    TABLE, FLAG, FLAG, INT, INT, ROWS, ROW, ROWS, ROWS, ROWS, PLACES, ROW, INT,
)  # fmt: skip
def tune(
    begin: int, end: int, memory: Array, s: Array, blocks: Array, act: int, x: Array, own_x: bool, last: bool,
    labels: Array, values: Array, rows: Array, counts: Array,
    wide: Array, heads: Array, turned: Array, z: Array, d: Array, slope: int, zeros: int, loss: int,
    table: Array, widens: bool, mlr: bool, kernel: int, spare: int, given: Array, under: Array, free: Array,
    first: Array, second: Array, at: Array, rates: Array, taken: int,
) -> None:  # fmt: skip
    """Step the members from `begin` to `end`: their rows of `free`, `first` and `second` change.

    As `convolved.train` has it, with the same S steps of B samples for all members: rows and counts (1, S, B). A step's
    map is put on the row `at` of `given`, or on the member's own where `at` is below 0. `kernel` and `spare`: numbers
    that the maps (`table`) need room for. `taken` steps of Adam came before.
    """
    base = (memory.ctypes.data + 63) // 64 * 64
    m, B, F = pointer(base), rows.shape[2], free.shape[1]
    made, by = pointer(base + 4 * s[WEIGHTS]), pointer(base + 4 * s[GRADIENT])
    picked, counted, slopes = np.empty(B, np.int64), np.empty(B, np.float32), np.empty(F, np.float32)
    kernels, room = np.empty(kernel, np.float32), np.empty(spare, np.float32)
    filled = np.empty(blocks[:, COUT].max(), np.int64)
    places = np.empty((3, ready(m, blocks, B, zeros, wide.max())), np.int64)
    for k in range(begin, end):
        f = pointer(free[k].ctypes.data)
        for t in range(rows.shape[1]):
            source = pointer(given[at[t] if at[t] >= 0 else k].ctypes.data)
            making(
                table, f, source, pointer(under.ctypes.data), pointer(kernels.ctypes.data), pointer(room.ctypes.data),
                made, widens, mlr,
            )  # fmt: skip
            n = picking(rows[0, t], counts[0, t], picked, counted)
            clear(m, s[GRADIENT], s[PARAMETERS])
            if n > 0:
                gradient(
                    m, s, blocks, act, x[0], last, n, labels[0], values[0], picked, counted, wide, heads, turned, z, d,
                    slope, zeros, loss, filled, places,
                )  # fmt: skip
            unmaking(table, f, source, made, by, pointer(slopes.ctypes.data), F, widens, mlr)
            adam(free[k], first[k], second[k], slopes, rates[t], taken + t + 1)
    memory[0] = ZERO  # arrays must live until here
    given[0, 0] += ZERO
    under[0] += ZERO
    kernels[0] = ZERO
    room[0] = ZERO
    slopes[0] = ZERO
