"""Weights stored and computed at the precision of a device: float32, float16, or int8 with a scale per tensor or row.

float16 weights are torch.float16, and so is the arithmetic on them. int8 weights are torch.int8; products are those of
the whole numbers times the scale. A step of gradient descent is smaller than the resolution of these formats, so new
values are rounded up or down at random with the right mean (stochastic rounding, Gupta et al., ICML 2015). Nearest
rounding would stop all learning. An int8 scale is set once, with room for weights to grow; biases begin at 0 and get a
least scale.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from potluck import keys
from potluck.fleet import Params
from potluck.tensors import each

Format = Literal["float32", "float16", "int8"]
FORMATS: tuple[Format, ...] = get_args(Format)
ROOM = 1.5  # the largest weight an int8 tensor can hold, over the largest it began with
BIAS = 0.5 / 127.0  # the least scale of int8 biases: they begin at 0 and must be able to grow, here to 0.5
_SCALE = "#scale"


def stored(weights: Params, form: str, rows: bool = False) -> Params:
    """The weights in a format, rounded to the nearest; each int8 tensor comes with its scale.

    With `rows` each unit of a layer has a scale of its own, a row of the matrix.
    """
    if form == "float32":
        return dict(weights)
    if form == "float16":
        return each(lambda w: w.half(), weights)
    out: Params = {}
    for name, w in weights.items():
        if rows and w.dim() == 2 and w.numel():
            largest = w.abs().amax(1, keepdim=True)
        else:
            largest = w.abs().amax() if w.numel() else w.new_zeros(())  # a hidden layer of no units
        scale = (largest * (ROOM / 127.0)).clamp_min(BIAS if name.endswith("bias") else 1e-8)
        out |= {name: torch.round(w / scale).clamp(-127, 127).to(torch.int8), name + _SCALE: scale}
    return out


def loaded(kept: Params) -> Params:
    """The weights for arithmetic: the tensors themselves, or whole numbers times their scale."""
    return {
        name: value.float() * kept[name + _SCALE] if name + _SCALE in kept else value
        for name, value in kept.items()
        if not name.endswith(_SCALE)
    }


def form_of(kept: Params) -> str:
    first = next(value for name, value in kept.items() if not name.endswith(_SCALE))
    return {torch.float16: "float16", torch.int8: "int8"}.get(first.dtype, "float32")


def rounded(values: Params, like: Params, key: Tensor) -> Params:
    """Put float32 values back into the format of `like`, rounded up or down at random; float32 stays as it is."""
    form = form_of(like)
    if form == "float32":
        return dict(values)
    out: Params = {}
    for name, value in values.items():
        draw = keys.uniform(keys.fold(key, "round", name), value.shape)
        if form == "float16":
            out[name] = _half(value, draw)
        else:
            scale = like[name + _SCALE]
            out[name] = torch.floor(value / scale + draw).clamp(-127, 127).to(torch.int8)
            out[name + _SCALE] = scale
    return out


def _half(value: Tensor, draw: Tensor) -> Tensor:
    """The two float16 numbers around a value; the nearer is the likelier."""
    near = value.half()
    gap = value - near.float()
    step = torch.exp2(torch.floor(torch.log2(near.float().abs().clamp_min(2**-14))) - 10)  # of ten bits
    other = (near.float() + torch.sign(gap) * step).half()
    return torch.where(draw < gap.abs() / step, other, near)
