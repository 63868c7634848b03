"""A recurrent classifier of two layers with its gradient written out: ten records are too few for autograd to pay.

    h_t = tanh(W x_t + V h_(t-1) + b) in each layer, y_t = u h_t + c read out after every record.

NumPy rather than torch: one step of it runs at every arrival, and is all small products (B sequences, T records,
U units). With the extra `fast`, the step and the score at an arrival come from a kernel instead, equal to rounding.
`tests/methods/parts/echopfl/test_broadcast.py` compares the gradient with autograd's.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from potluck import compiled, keys
from potluck.fleet import Params
from potluck.rows import Form, place_of

Floats = NDArray[Any]
LAYERS = (0, 1)
NAMES = ("w_0", "v_0", "b_0", "w_1", "v_1", "b_1", "u", "c")
UNITS_AT = 6  # u, whose length is U


def fresh(inputs: int, units: int, *key: int | str) -> Params:
    made: Params = {}
    for layer, width in zip(LAYERS, (inputs, units), strict=True):
        own = keys.key(*key, layer)
        made[f"w_{layer}"] = keys.normal(keys.fold(own, "in"), (units, width)) / width**0.5
        made[f"v_{layer}"] = keys.normal(keys.fold(own, "back"), (units, units)) * (0.5 / units**0.5)
        made[f"b_{layer}"] = torch.zeros(units)
    made["u"] = keys.normal(keys.key(*key, "out"), (units,)) / units**0.5
    made["c"] = torch.zeros(1)
    return made


def arrays(weights: Params) -> dict[str, Floats]:
    """The same numbers for NumPy, without a copy."""
    return {name: value.numpy() for name, value in weights.items()}


def forward(net: dict[str, Floats], x_BTI: Floats) -> tuple[Floats, list[Floats]]:
    """Scores (B, T), and what each layer gave (B, T, U)."""
    hidden, below = [], x_BTI
    for layer in LAYERS:
        h_BTU = below @ net[f"w_{layer}"].T + net[f"b_{layer}"]
        back = net[f"v_{layer}"].T
        moments = list(h_BTU.swapaxes(0, 1))  # views: all that is asked of them ten times is an operation
        np.tanh(moments[0], out=moments[0])
        for before, now in pairwise(moments):
            now += before @ back
            np.tanh(now, out=now)
        hidden.append(h_BTU)
        below = h_BTU
    return below @ net["u"] + net["c"], hidden


def gradient(net: dict[str, Floats], x_BTI: Floats, target_BT: Floats, used_BT: Floats) -> dict[str, Floats]:
    """Of the mean cross-entropy over the scores that are used: backpropagation through time."""
    scores, hidden = forward(net, x_BTI)
    # d/ds of log(1 + e^-s) and its counterpart is sigmoid(s) - target
    d_BT = (1.0 / (1.0 + np.exp(-scores)) - target_BT) * used_BT / max(float(used_BT.sum()), 1.0)
    found = {"u": np.einsum("bt,btu->u", d_BT, hidden[1]), "c": d_BT.sum(keepdims=True).reshape(1)}
    d_h = d_BT[..., None] * net["u"]
    for layer in reversed(LAYERS):
        h_BTU, below = hidden[layer], (x_BTI if layer == 0 else hidden[layer - 1])
        slopes, moments, back = (1.0 - h_BTU**2).swapaxes(0, 1), list(d_h.swapaxes(0, 1)), net[f"v_{layer}"]
        for t in range(len(moments) - 1, 0, -1):  # d_h becomes the gradient before the tanh
            now = moments[t]
            now *= slopes[t]
            moments[t - 1] += now @ back
        moments[0] *= slopes[0]
        flat = d_h.reshape(-1, d_h.shape[-1])
        found[f"w_{layer}"] = flat.T @ below.reshape(-1, below.shape[-1])
        found[f"v_{layer}"] = d_h[:, 1:].reshape(-1, d_h.shape[-1]).T @ h_BTU[:, :-1].reshape(-1, d_h.shape[-1])
        found[f"b_{layer}"] = flat.sum(0)
        d_h = d_h @ net[f"w_{layer}"]
    return found


def last_score(weights: Params, x_TI: Floats) -> float:
    """The score after the newest record of one sequence."""
    place = _place(weights)
    if place is not None:
        form, addresses = place
        return float(compiled.kernels("predictor").last_score(addresses, x_TI, form.shapes[UNITS_AT][0]))
    return float(forward(arrays(weights), x_TI[None])[0][0, -1])


def stepped(weights: Params, x_TI: Floats, target_T: Floats, used_T: Floats, step: float) -> Params:
    """The weights after one gradient step on one sequence."""
    place = _place(weights)
    if place is not None:
        form, addresses = place
        new = form.single()
        assert new.stack is not None
        compiled.kernels("predictor").lesson(
            addresses, x_TI, target_T, used_T, form.shapes[UNITS_AT][0], np.float32(step), new.stack.addresses
        )
        return new
    net = arrays(weights)
    found = gradient(net, x_TI[None], target_T[None], used_T[None])
    for name, slope in found.items():  # net - step slope, in the slope's place
        slope *= np.float32(-step)
        slope += net[name]
    return {name: torch.from_numpy(found[name]) for name in net}


def _place(weights: Params) -> tuple[Form, Floats] | None:
    """Where a kernel finds the weights, in the order of NAMES; None where there is no kernel for them."""
    place = place_of(weights) if compiled.ready() else None
    return place if place is not None and place[0].names == NAMES else None
