"""The memory that training a network takes, part by part: weights, gradients, kept activations, samples.

For a CFC the figures are those of the firmware (`firmware/src/cfc_plan.c`), byte for byte: it trains on one sample at a
time and reads samples from flash. The state makes all else of a step computable again, so there are four ways of
keeping activations, from quick and large to slow and small:

    all        every layer's output of every step
    states     the states only; a step is computed again on the way back
    fours      every fourth state; of four steps the layers' outputs are computed again together, and are all at hand
    segments   the state at the start of each of about √T segments, and the states of one segment

fBind's exact second-order terms keep a tangent for every state. For any other network, the bytes are counted that
PyTorch keeps from the forward pass of one mini-batch for the backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isqrt, prod
from typing import Any

import torch
from torch import Tensor

from potluck.errors import Code, unknown
from potluck.models.catalogue import build
from potluck.models.cfc import HEADS, as_series, last_layer
from potluck.models.cfc_steps import is_plain
from potluck.models.model import Model

WIDTH = {"float32": 4, "float16": 2, "int8": 1}  # bytes of a stored weight
KEEPING = ("all", "states", "segments", "fours")  # PL_KEEP_ALL and so on
SLOTS, PANEL = 4, 8  # PL_SLOTS and PANEL of the firmware: steps collected for a gradient; rows of int8 weights unpacked
REAL = 4  # bytes of what arithmetic leaves: gradients and activations are float32


@dataclass(frozen=True)
class Need:
    """Bytes, by what they are for."""

    weights: int
    gradients: int
    activations: int
    samples: int
    messages: int  # LUD, CUD and the second-order direction of fBind

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.activations + self.samples + self.messages


def need(
    model: Model, *, batch: int = 1, precision: str = "float32", keep: str = "segments", second_order: bool = True,
    layers: Sequence[int] = (),
) -> Need:  # fmt: skip
    """Bytes that training takes; `keep`, `second_order` and `layers` (of f, g and h, if not its own) are a CFC's."""
    if precision not in WIDTH:
        raise unknown(Code.ARGUMENT, "precision", precision, WIDTH)
    if keep not in KEEPING:
        raise unknown(Code.ARGUMENT, "keep", keep, KEEPING)
    if layers and tuple(layers) != tuple(model.settings["layers"]):
        model = build(model.name, model.shape, model.classes, {**model.settings, "layers": tuple(layers)}, model.task)
    weights = model.init(0)
    count = sum(value.numel() for value in weights.values())
    if model.name != "cfc" or not is_plain(model.settings):
        samples = batch * prod(model.shape) * REAL
        return Need(count * WIDTH[precision], count * REAL, _kept(model, batch), samples, 0)
    vector = weights[last_layer(list(weights), "f")].numel()
    scales = _bytes(len(weights)) if precision == "int8" else 0
    return Need(
        _bytes(count, WIDTH[precision]) + scales,
        _bytes(count),
        _cfc_activations(model, keep, precision, second_order),
        0,  # read from flash, in place
        (3 if second_order else 1) * _bytes(vector),
    )


def _bytes(numbers: int, width: int = REAL) -> int:
    """Of one piece of a device's memory: pieces begin at multiples of 8."""
    return -(-numbers * width // 8) * 8


def _cfc_activations(model: Model, keep: str, precision: str, second_order: bool) -> int:
    """Bytes kept of one sequence, and of the steps at hand: `plan` in firmware/src/cfc_plan.c, piece by piece."""
    steps, inputs = as_series(model.shape)
    state, backbone, head = (int(model.settings[name]) for name in ("hidden", "backbone", "head"))
    first = sum(head for layers in model.settings["layers"] if layers == 2)
    record = inputs + state + backbone + first + len(HEADS) * state  # of one step
    adjoints = backbone + first + len(HEADS) * state + model.classes
    segment = {"segments": isqrt(steps - 1) + 1, "fours": SLOTS}.get(keep, steps)
    segments = ceil(steps / segment)
    starts = segments * state if segments > 1 or keep == "fours" else 0
    inside = 0 if keep == "fours" else segment * (record - inputs if keep == "all" else state)
    tangents = 2 if second_order else 1
    once = [SLOTS * record, SLOTS * adjoints, head + state]
    once += [PANEL * max(inputs + state, backbone, head)] if precision == "int8" else []
    twice = [starts, inside, state, backbone, head, model.classes]
    return sum(map(_bytes, once)) + tangents * sum(map(_bytes, twice))


def _kept(model: Model, batch: int) -> int:
    """Count the bytes that the forward pass keeps for the backward pass, without weights and samples."""
    weights = {name: value.requires_grad_(value.is_floating_point()) for name, value in model.init(0).items()}
    x = torch.zeros((batch, *model.shape))
    own = {value.untyped_storage().data_ptr() for value in (x, *weights.values())}
    seen: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    def back(tensor: Any) -> Any:
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, back):
        logits, _ = model.train_logits(weights, x, weight=torch.ones(batch), key=torch.tensor(0))
        held = model.losses(logits, model.task.blank(batch)).mean()
    del held
    return sum(seen.values())
