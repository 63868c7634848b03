"""Stacked tensors to kernels and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from potluck.compiled import kernels, note, ready, spread
from potluck.compiled.kept import grams_of
from potluck.compiled.pages import room

ACTIVATIONS = {"none": 0, "relu": 1, "tanh": 2}
LOSSES = {"cross_entropy": 0, "hinge": 1, "huber": 2}
WORTH = 100_000  # samples to order; below, to wake another worker takes longer than it saves
FORMS = {"direct": 0, "dual": 1, "auto": 2}


def fits(*values: Tensor) -> bool:
    """Whether kernels can train these: float32 on the processor."""
    return ready() and all(v.dtype == torch.float32 and v.device.type == "cpu" for v in values)


def whole(value: Tensor) -> tuple[Tensor, int]:
    """A stack in one piece, and 1; where all clients share a tensor, that alone, and 0."""
    if value.dim() and value.stride(0) == 0 and len(value) > 1:
        return value[:1].contiguous(), 0
    return value.contiguous(), 1


class Addresses:
    """Where the tensors of L layers are, weight and bias of each, and whether each client has its own."""

    def __init__(self, layers: int) -> None:
        self.at = np.zeros((layers, 2), np.int64)
        self.own = np.zeros((layers, 2), np.int64)
        self._kept: list[Tensor] = []  # a kernel knows addresses only

    def put(self, layer: int, place: int, value: Tensor) -> None:
        value, own = whole(value)
        self.at[layer, place], self.own[layer, place] = value.data_ptr(), own
        self._kept.append(value)


def train_dense(
    x: Tensor,
    y: Tensor,
    rows: Tensor,
    counts: Tensor,
    numbers: Sequence[Tensor],  # learning rate, and the factors of a pull: one of each per client
    layers: Sequence[tuple[int, int | None, str]],  # where weight and bias stand in `given`, and the activation
    given: Sequence[Tensor],
    moves: Sequence[bool],
    shift: Sequence[Tensor | None],
    loss: str,
    momentum: float,
    pulled: bool,
    form: str = "auto",
) -> dict[int, Tensor]:
    """Train a stack of dense networks. Return the tensors that moved, by their place in `given`."""
    clients, depth = len(x), len(layers)
    old, new, push = Addresses(depth), Addresses(depth), Addresses(depth)
    moving = np.zeros((depth, 2), np.int64)
    out: dict[int, Tensor] = {}
    for i, (weight, bias, _) in enumerate(layers):
        for j, place in enumerate((weight, bias)):
            if place is None:
                continue
            old.put(i, j, given[place])
            constant = shift[place]
            if constant is not None:
                push.put(i, j, constant)
            if moves[place]:
                moving[i, j] = 1
                out[place] = room(given[place].shape)
                new.put(i, j, out[place])
    samples, own = whole(x)
    labels, values = targets(y)
    wide = np.array([x.shape[2], *(given[weight].shape[1] for weight, _, _ in layers)])
    acts = np.array([ACTIVATIONS[name] for _, _, name in layers])
    lr, scale, times = (value.contiguous().numpy() for value in numbers)
    arrays = (samples.numpy(), bool(own), labels, values, rows.contiguous().numpy(), counts.contiguous().numpy())
    plan = (lr, wide, acts, LOSSES[loss], moving, old.at, old.own, new.at)
    squares = torch.zeros((depth, 2, clients))
    grams, known = grams_of(samples, FORMS[form] > 0 and not momentum)
    rest = (float(momentum), pulled, scale, times, push.at, push.own, FORMS[form], squares.numpy(), grams, known)
    kernel = kernels("dense").train
    spread(clients, lambda begin, end: kernel(begin, end, *arrays, *plan, *rest))
    for i, (weight, bias, _) in enumerate(layers):
        for j, place in enumerate((weight, bias)):
            if place in out:
                note(out[place], squares[i, j])
    return out


def orders(keys: Tensor, epochs: Sequence[int], real: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Orders of the samples of K clients and their 0/1 weights, padded to (K, E, width).

    Each client has a key (K). Its order in an epoch is drawn with the key folded with the epoch's number (E).
    """
    rows = torch.empty((len(real), len(epochs), width), dtype=torch.int64)
    counts = torch.empty((len(real), len(epochs), width))
    given = (keys.contiguous().numpy(), np.array(epochs, np.int64), real.contiguous().numpy())
    arrays = (*given, rows.numpy(), counts.numpy())
    kernel = kernels("orders").draw
    if rows.numel() < WORTH:
        kernel(0, len(real), *arrays)
    else:
        spread(len(real), lambda begin, end: kernel(begin, end, *arrays))
    return rows, counts


def targets(y: Tensor) -> tuple[Any, Any]:
    """Labels and values; of the two, the one that the task does not have is blank."""
    if y.is_floating_point():
        return np.zeros(y.shape[:2], np.int64), y.contiguous().reshape(*y.shape[:2], -1).numpy()
    return y.contiguous().numpy(), np.zeros((len(y), 1, 1), np.float32)
