"""Stacks of convolutional networks to kernels and back."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
from torch import Tensor

from potluck.compiled import kernels, spread
from potluck.compiled.blocks import LISTS, NAMES
from potluck.compiled.forms import Block, form_of
from potluck.compiled.places import BY_X, GRADIENT, PARAMETERS, SECOND, SPEED, WEIGHTS, Plan
from potluck.compiled.sequences import Rule
from potluck.compiled.stack import ACTIVATIONS, LOSSES, targets, whole

__all__ = ["Answers", "Block", "Rule", "Slopes", "train"]
Pair = tuple[int, int]
AT_ONCE = 32  # samples that answer at once


def train(
    x: Tensor, y: Tensor, rows: Tensor, counts: Tensor, weights: Tensor, lr: Tensor, scale: Tensor, shift: Tensor,
    moves: Any, pulled: Any, rule: Rule, loss: str, blocks: tuple[Block, ...], wide: tuple[int, ...], activation: str,
    last: bool,
) -> None:  # fmt: skip
    """Train a stack, whose weights (K, P) change in place."""
    clients = len(weights)
    call = _prepared(x, y, rows.shape[2], weights.shape[1], loss, blocks, wide, activation, last)
    batches = rows.contiguous().numpy(), counts.contiguous().numpy()
    rest = (
        rule.array(bool(pulled.any())), moves, weights.numpy(), lr.contiguous().numpy(), scale.contiguous().numpy(),
        pulled, shift.contiguous().numpy(),
    )  # fmt: skip
    spread(clients, lambda begin, end: call(begin, end, *batches, *rest))


class Slopes:
    """The gradient of the mean loss over mini-batches of one client's samples, x (1, N, ...): one call each."""

    def __init__(
        self, x: Tensor, y: Tensor, batch: int, parameters: int, loss: str, blocks: tuple[Block, ...],
        wide: tuple[int, ...], activation: str, last: bool,
    ) -> None:  # fmt: skip
        given = x, y, batch, parameters, loss, blocks, wide, activation, last
        self._call, self._tune = _prepared(*given), partial(_prepared, *given, name="tuned")
        every, one = np.ones(parameters, np.float32), np.ones(1, np.float32)
        none = np.zeros((1, 0), np.float32)
        self._rule = Rule(0.0, False, 0.0, False, look=True).array(False), every
        self._rest = one, one, 0.0 * every, none

    def __call__(self, weights: Any, rows: Tensor, counts: Tensor) -> Any:
        """Of the mini-batch with these rows (B,) and counts (B,), by the weights (P,) in the order of kernels."""
        slope = weights[None].copy()
        self._call(0, 1, rows[None, None].numpy(), counts[None, None].numpy(), *self._rule, slope, *self._rest)
        return slope[0]

    def tune(self, members: int, rows: Any, counts: Any, *given: Any) -> None:
        """Steps on the mini-batches with rows and counts (S, B), with all else that `tuned.tune` is given."""
        call = self._tune()
        spread(members, lambda begin, end: call(begin, end, rows[None], counts[None], *given))


class Answers:
    """The outputs of networks for the same samples x (N, ...), without a gradient."""

    def __init__(
        self, x: Tensor, parameters: int, blocks: tuple[Block, ...], wide: tuple[int, ...], activation: str, last: bool
    ) -> None:
        batch = min(AT_ONCE, len(x))
        plan, table, heads, _, z, _, slope, zeros = _placed(blocks, wide, parameters, batch)
        channels = blocks[0].channels
        samples = x.contiguous().reshape(len(x), *((-1, channels) if last else (channels, -1))).numpy()
        self._room, self._shape = plan.size + 16, (len(x), wide[-1])
        self._given = plan.table, table, ACTIVATIONS[activation], batch, samples, last
        self._layers = np.array(wide), heads, z, slope, zeros
        self._kernel = kernels("convolved").answer

    def __call__(self, weights: Any) -> Any:
        """(N, O) of the weights (P,) in the order of kernels."""
        out = np.empty(self._shape, np.float32)
        self._kernel(np.empty(self._room, np.float32), *self._given, *self._layers, weights, out)
        return out


def _prepared(
    x: Tensor, y: Tensor, batch: int, parameters: int, loss: str, blocks: tuple[Block, ...], wide: tuple[int, ...],
    activation: str, last: bool, name: str = "convolved",
) -> Callable[..., None]:  # fmt: skip
    """The kernel, with all that stays the same: clients from and to, rows, counts, rule and weights are missing."""
    plan, table, heads, turned, z, d, slope, zeros = _placed(blocks, wide, parameters, batch)
    labels, values = targets(y)
    samples, own = whole(x)
    channels = blocks[0].channels
    seen = (-1, channels) if last else (channels, -1)
    arrays = samples.reshape(len(samples), x.shape[1], *seen).numpy(), bool(own), last, labels, values
    layers = np.array(wide), heads, turned, z, d, slope, zeros, LOSSES[loss]
    kernel = kernels("convolved").train if name == "convolved" else kernels(name).tune

    def call(begin: int, end: int, rows: Any, counts: Any, *rest: Any) -> None:
        memory = np.empty(plan.size + 16, np.float32)
        given = ACTIVATIONS[activation], *arrays, rows, counts, *layers, *rest
        kernel(begin, end, memory, plan.table, table, *given)

    return call


@lru_cache(64)
def _placed(blocks: tuple[Block, ...], wide: tuple[int, ...], parameters: int, batch: int) -> Any:
    """Places of everything in the scratch memory: those of all layers, and a table of the convolutions."""
    plan, width = Plan(), kernels("vectors").WIDTH
    plan.table[PARAMETERS] = parameters
    for name in (WEIGHTS, GRADIENT, SPEED, SECOND):
        plan.room(name, parameters)
    plan.room(BY_X, max(block.size for block in blocks) + max(block.slack for block in blocks) + 16 * 12)
    at = int(plan.table[WEIGHTS])
    forms = [form_of(block, i == 0, width) for i, block in enumerate(blocks)]
    images = [plan.take(batch * block.size + block.slack + 16 * 12) for block in blocks]
    z = [plan.take(batch * count) for count in wide]
    d = [plan.take(batch * count) for count in wide]
    table = []
    for i, (block, form) in enumerate(zip(blocks, forms, strict=True)):
        after = blocks[i + 1] if i + 1 < len(blocks) else None
        weight, bias = at, at + block.kernel_y * block.kernel_x * block.channels * block.outputs
        at = bias + block.outputs
        border = (0, 0) if after is None else after.padding
        windows = block.outputs * block.pooled[0] * block.pooled[1]
        lists = form.kind == LISTS
        own = {
            "CIN": block.channels, "HEIGHT": block.height, "WIDTH": block.width, "COUT": block.outputs,
            "KY": block.kernel_y, "KX": block.kernel_x, "STRIDE_Y": block.stride[0], "STRIDE_X": block.stride[1],
            "PAD_Y": block.padding[0], "PAD_X": block.padding[1], "OUT_Y": block.out[0], "OUT_X": block.out[1],
            "ROW_X": block.row, "POOL_Y": block.pool[0], "POOL_X": block.pool[1], "POOLED_Y": block.pooled[0],
            "POOLED_X": block.pooled[1], "WEIGHT": weight, "BIAS": bias, "IMAGE": images[i], "IMAGE_SIZE": block.size,
            "WINNER": plan.take(batch * windows), "NEXT": z[0] if after is None else images[i + 1],
            "NEXT_SIZE": wide[0] if after is None else after.size, "NEXT_PAD_Y": border[0], "NEXT_PAD_X": border[1],
            "NEXT_WIDTH": block.pooled[1] + 2 * border[1], "SLACK": block.slack, "FORM": form.kind,
            "CODE_Y": form.code[0], "CODE_X": form.code[1],
            "BACK": plan.take(max(bias - weight, block.outputs * form.span)),
            "SUMS": plan.take(lists * block.outputs * form.span), "SPAN": form.span, "ACROSS": form.across,
            "VECTORS": form.vectors, "AT_ONCE": form.rows, "AT_ONCE_BACK": form.rows_back,
            "BY_CHANNEL": plan.take(lists * 2 * windows), "BY_PLACE": plan.take(lists * (2 * block.area * windows + 2)),
        }  # fmt: skip
        table.append([own[name] for name in NAMES])
    heads, turned = [], []
    for inputs, outputs in pairwise(wide):
        heads.append(at)
        at += inputs * outputs + outputs
        turned.append(plan.take(inputs * outputs))
    slope = plan.take(max(block.out[0] * block.row * block.outputs for block in blocks) + 16)
    zeros = plan.take(max(wide))
    arrays = (np.array(value, np.int64) for value in (table, heads, turned, z, d))
    return plan, *arrays, slope, zeros
