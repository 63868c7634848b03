"""Where a recurrent network's numbers stand in the scratch memory of a kernel: one table of sizes and offsets.

C channels, H hidden units, O outputs, P parameters, T time steps and B samples of the longest batch. A gate of a GRU or
LSTM is H wide, and there are G of them. In a CFC the backbone has K units, and the hidden layers of the heads f, g and
h have J, together; a head whose hidden layer has no units reads the backbone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

NAMES = (
    # sizes
    "CHANNELS", "HIDDEN", "OUTPUTS", "PARAMETERS", "CELL", "GATES", "GATED", "TIMED", "BACKBONE", "UNITS", "UNITS_F",
    "UNITS_G", "UNITS_H",
    # of every network: weights, the same times their factors, gradient, momentum, second moments
    "WEIGHTS", "FOLDED", "GRADIENT", "SPEED", "SECOND",
    # a batch: samples, time spans and shares by steps, states, derivatives of the loss, and the readout transposed
    "SAMPLES", "SPANS", "SHARES", "STATES", "SLOPES", "OUT_T",
    # offsets of tensors among the weights; recurrent cells: input and state weights, their biases
    "INPUT", "INPUT_BIAS", "STATE", "STATE_BIAS", "OUT", "OUT_BIAS",
    # CFC: the backbone is INPUT; first layers and biases of the heads, last layers, all last biases
    "FIRST", "FIRST_BIAS", "LAST_F", "LAST_G", "LAST_H", "LAST_BIAS",
    # transposed weights
    "INPUT_T", "STATE_T", "FIRST_T", "LAST_TF", "LAST_TG", "LAST_TH",
    # values of all steps; recurrent cells: gates, and the product of n or the cell's state
    "VALUES", "OTHER",
    # CFC: backbone z and hidden layers q; heads are VALUES
    "Z", "Q",
    # adjoints of states, heads or gates, and of hidden layers and backbone before and after their slopes
    "BY_X", "BY_R", "BY_Q0", "BY_Q", "BY_Z0", "BY_Z",
    # the same of the second pass, and tangents of x, the arguments of z and q, z, q and r
    "BY2_X", "BY2_R", "BY2_Q0", "BY2_Q", "BY2_Z0", "BY2_Z", "DOT_X", "DOT_N", "DOT_M", "DOT_Z", "DOT_Q", "DOT_R",
    # tangent of a head's last layer, and transposed; means of f's layers
    "TURN", "TURN_T", "MEANS",
)  # fmt: skip
(
    CHANNELS, HIDDEN, OUTPUTS, PARAMETERS, CELL, GATES, GATED, TIMED, BACKBONE, UNITS, UNITS_F, UNITS_G, UNITS_H,
    WEIGHTS, FOLDED, GRADIENT, SPEED, SECOND,
    SAMPLES, SPANS, SHARES, STATES, SLOPES, OUT_T,
    INPUT, INPUT_BIAS, STATE, STATE_BIAS, OUT, OUT_BIAS,
    FIRST, FIRST_BIAS, LAST_F, LAST_G, LAST_H, LAST_BIAS,
    INPUT_T, STATE_T, FIRST_T, LAST_TF, LAST_TG, LAST_TH,
    VALUES, OTHER, Z, Q,
    BY_X, BY_R, BY_Q0, BY_Q, BY_Z0, BY_Z,
    BY2_X, BY2_R, BY2_Q0, BY2_Q, BY2_Z0, BY2_Z, DOT_X, DOT_N, DOT_M, DOT_Z, DOT_Q, DOT_R,
    TURN, TURN_T, MEANS,
) = range(len(NAMES))  # fmt: skip
CFC, GRU, LSTM, RNN = 0, 1, 2, 3
PLAIN, GATED_CELL, LEAKY = 0, 1, 2  # what GATED says of a CFC
CELLS = {"cfc": CFC, "gru": GRU, "lstm": LSTM, "rnn": RNN}
GATES_OF = {"gru": 3, "lstm": 4, "rnn": 1}


class Plan:
    """The table, and how many numbers the memory must hold."""

    def __init__(self) -> None:
        self.table: Any = np.zeros(len(NAMES), np.int64)
        self.size = 0

    def room(self, name: int, count: int) -> None:
        """Take places for so many numbers. They begin where a line of the cache does."""
        self.table[name] = self.take(count)

    def take(self, count: int) -> int:
        """The same for what is not in the table."""
        place = self.size
        self.size += -(-count // 16) * 16
        return place


def recurrent_plan(cell: str, channels: int, hidden: int, outputs: int, steps: int, batch: int) -> Plan:
    """A GRU, LSTM or tanh network of one layer, with the weights in the order of torch.nn's and the readout last."""
    plan, wide, many = Plan(), GATES_OF[cell] * hidden, steps * batch
    offsets = (INPUT, wide * channels), (STATE, wide * hidden), (INPUT_BIAS, wide), (STATE_BIAS, wide)
    _common(plan, cell, channels, hidden, outputs, many, batch, offsets)
    plan.table[GATES] = GATES_OF[cell]
    plan.room(INPUT_T, wide * channels)
    plan.room(STATE_T, wide * hidden)
    plan.room(VALUES, many * wide)
    plan.room(OTHER, many * hidden)
    plan.room(BY_X, many * hidden)
    plan.room(BY_R, many * wide)
    plan.room(BY_Q, many * wide)
    plan.room(BY_Z, batch * hidden)
    return plan


def cfc_plan(
    channels: int, backbone: int, units: tuple[int, int, int], hidden: int, outputs: int, steps: int, batch: int,
    gate: int, timed: bool, bound: bool,
) -> Plan:  # fmt: skip
    """A CFC; `bound` with room for the second derivatives of FedCFC."""
    plan, many, together = Plan(), steps * batch, sum(units)
    ins = [count or backbone for count in units]
    offsets = (
        (INPUT, backbone * (channels + hidden)), (INPUT_BIAS, backbone), (FIRST, together * backbone),
        (FIRST_BIAS, together), *((LAST_F + k, hidden * ins[k]) for k in range(3)), (LAST_BIAS, 3 * hidden),
    )  # fmt: skip
    _common(plan, "cfc", channels, hidden, outputs, many, batch, offsets)
    table = plan.table
    table[GATED], table[TIMED], table[BACKBONE], table[UNITS] = gate, timed, backbone, together
    table[UNITS_F : UNITS_F + 3] = units
    plan.room(INPUT_T, backbone * channels)
    plan.room(STATE_T, backbone * hidden)
    plan.room(FIRST_T, together * backbone)
    for k in range(3):
        plan.room(LAST_TF + k, hidden * ins[k])
    plan.room(VALUES, many * 3 * hidden)
    plan.room(Z, many * backbone)
    plan.room(Q, many * together)
    for first in (BY_X, BY2_X) if bound else (BY_X,):
        plan.room(first, many * hidden)
        plan.room(first + 1, many * 3 * hidden)
        for at, width in ((first + 2, together), (first + 4, backbone)):
            plan.room(at, many * width)
            if bound:
                plan.room(at + 1, many * width)
            else:
                table[at + 1] = table[at]
    if bound:
        for at, width in (
            (DOT_X, hidden), (DOT_N, backbone), (DOT_M, together), (DOT_Z, backbone), (DOT_Q, together),
            (DOT_R, 3 * hidden),
        ):  # fmt: skip
            plan.room(at, many * width)
        plan.room(TURN, hidden * max(ins))
        plan.room(TURN_T, hidden * max(ins))
        plan.room(MEANS, max(outputs, max(ins) + hidden))
    return plan


def _common(
    plan: Plan, cell: str, channels: int, hidden: int, outputs: int, many: int, batch: int, offsets: Any
) -> None:
    at = 0
    for name, count in (*offsets, (OUT, outputs * hidden), (OUT_BIAS, outputs)):
        plan.table[name] = at
        at += count
    sizes = ((CHANNELS, channels), (HIDDEN, hidden), (OUTPUTS, outputs), (PARAMETERS, at), (CELL, CELLS[cell]))
    for name, value in sizes:
        plan.table[name] = value
    for name in (WEIGHTS, FOLDED, GRADIENT, SPEED, SECOND):
        plan.room(name, at)
    plan.room(SAMPLES, many * channels)
    plan.room(SPANS, many)
    plan.room(SHARES, many)
    plan.room(STATES, many * hidden)
    plan.room(SLOPES, batch * outputs)
    plan.room(OUT_T, outputs * hidden)
