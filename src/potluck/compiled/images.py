"""Stacks of convolutional networks to kernels and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from potluck.compiled import kernels, spread
from potluck.compiled.places import BY_X, GRADIENT, PARAMETERS, SECOND, SPEED, WEIGHTS, Plan
from potluck.compiled.sequences import Rule
from potluck.compiled.stack import ACTIVATIONS, LOSSES, targets, whole

__all__ = ["Answers", "Block", "Rule", "Slopes", "train"]
Pair = tuple[int, int]
AT_ONCE = 32  # samples that answer at once


class Block(NamedTuple):
    """A convolution and the pooling behind it; pairs are (y, x)."""

    channels: int
    height: int
    width: int
    outputs: int
    kernel_y: int
    kernel_x: int
    stride: Pair
    padding: Pair
    pool: Pair

    @property
    def out(self) -> Pair:
        """Rows and columns of outputs before pooling."""
        y = (self.height + 2 * self.padding[0] - self.kernel_y) // self.stride[0] + 1
        return y, (self.width + 2 * self.padding[1] - self.kernel_x) // self.stride[1] + 1

    @property
    def pooled(self) -> Pair:
        return self.out[0] // self.pool[0], self.out[1] // self.pool[1]

    @property
    def row(self) -> int:
        """Columns that there is room for: tiles have four or eight rows."""
        return -(-self.out[1] // 4) * 4

    @property
    def size(self) -> int:
        """Numbers of an image within its borders."""
        return (self.height + 2 * self.padding[0]) * (self.width + 2 * self.padding[1]) * self.channels

    @property
    def slack(self) -> int:
        """How far the products of the columns without an output may read beyond an image."""
        return (self.row * self.stride[1] + self.kernel_x) * self.channels


def train(
    x: Tensor, y: Tensor, rows: Tensor, counts: Tensor, weights: Tensor, lr: Tensor, scale: Tensor, shift: Tensor,
    moves: Any, pulled: Any, rule: Rule, loss: str, blocks: Sequence[Block], wide: Sequence[int], activation: str,
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
        self, x: Tensor, y: Tensor, batch: int, parameters: int, loss: str, blocks: Sequence[Block],
        wide: Sequence[int], activation: str, last: bool,
    ) -> None:  # fmt: skip
        self._call = _prepared(x, y, batch, parameters, loss, blocks, wide, activation, last)
        every, one = np.ones(parameters, np.float32), np.ones(1, np.float32)
        none = np.zeros((1, 0), np.float32)
        self._rule = Rule(0.0, False, 0.0, False, look=True).array(False), every
        self._rest = one, one, 0.0 * every, none

    def __call__(self, weights: Any, rows: Tensor, counts: Tensor) -> Any:
        """Of the mini-batch with these rows (B,) and counts (B,), by the weights (P,) in the order of kernels."""
        slope = weights[None].copy()
        self._call(0, 1, rows[None, None].numpy(), counts[None, None].numpy(), *self._rule, slope, *self._rest)
        return slope[0]


class Answers:
    """The outputs of networks for the same samples x (N, ...), without a gradient."""

    def __init__(
        self, x: Tensor, parameters: int, blocks: Sequence[Block], wide: Sequence[int], activation: str, last: bool
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
    x: Tensor, y: Tensor, batch: int, parameters: int, loss: str, blocks: Sequence[Block], wide: Sequence[int],
    activation: str, last: bool,
) -> Callable[..., None]:  # fmt: skip
    """The kernel, with all that stays the same: clients from and to, rows, counts, rule and weights are missing."""
    plan, table, heads, turned, z, d, slope, zeros = _placed(blocks, wide, parameters, batch)
    labels, values = targets(y)
    samples, own = whole(x)
    channels = blocks[0].channels
    seen = (-1, channels) if last else (channels, -1)
    arrays = samples.reshape(len(samples), x.shape[1], *seen).numpy(), bool(own), last, labels, values
    layers = np.array(wide), heads, turned, z, d, slope, zeros, LOSSES[loss]
    kernel = kernels("convolved").train

    def call(begin: int, end: int, rows: Any, counts: Any, *rest: Any) -> None:
        memory = np.empty(plan.size + 16, np.float32)
        given = ACTIVATIONS[activation], *arrays, rows, counts, *layers, *rest
        kernel(begin, end, memory, plan.table, table, *given)

    return call


def _placed(blocks: Sequence[Block], wide: Sequence[int], parameters: int, batch: int) -> Any:
    """Places of everything in the scratch memory: those of all layers, and a table of the convolutions."""
    plan = Plan()
    plan.table[PARAMETERS] = parameters
    for name in (WEIGHTS, GRADIENT, SPEED, SECOND):
        plan.room(name, parameters)
    plan.room(BY_X, max(block.size for block in blocks) + max(block.slack for block in blocks))
    at = int(plan.table[WEIGHTS])
    images = [plan.take(batch * block.size + block.slack) for block in blocks]
    z = [plan.take(batch * count) for count in wide]
    d = [plan.take(batch * count) for count in wide]
    table = []
    for i, block in enumerate(blocks):
        after = blocks[i + 1] if i + 1 < len(blocks) else None
        weight, bias = at, at + block.kernel_y * block.kernel_x * block.channels * block.outputs
        at = bias + block.outputs
        border = (0, 0) if after is None else after.padding
        table.append([
            block.channels, block.height, block.width, block.outputs, block.kernel_y, block.kernel_x, *block.stride,
            *block.padding, *block.out, block.row, *block.pool, *block.pooled, weight, bias, images[i], block.size,
            plan.take(batch * block.outputs * block.pooled[0] * block.pooled[1]),
            z[0] if after is None else images[i + 1], wide[0] if after is None else after.size, *border,
            block.pooled[1] + 2 * border[1], plan.take(bias - weight), block.slack,
        ])  # fmt: skip
    heads, turned = [], []
    for inputs, outputs in pairwise(wide):
        heads.append(at)
        at += inputs * outputs + outputs
        turned.append(plan.take(inputs * outputs))
    slope = plan.take(max(block.out[0] * block.row * block.outputs for block in blocks) + 16)
    zeros = plan.take(max(wide))
    arrays = (np.array(value, np.int64) for value in (table, heads, turned, z, d))
    return plan, *arrays, slope, zeros
