"""Stacks of convolutional networks to kernels and back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from potluck.compiled import kernels, spread
from potluck.compiled.places import BY_X, GRADIENT, PARAMETERS, SECOND, SPEED, WEIGHTS, Plan
from potluck.compiled.sequences import Rule
from potluck.compiled.stack import ACTIVATIONS, LOSSES, targets, whole

__all__ = ["Block", "Rule", "train"]
Pair = tuple[int, int]


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
    clients, batch = len(weights), rows.shape[2]
    plan, table, heads, turned, z, d, slope, zeros = _placed(blocks, wide, weights.shape[1], batch)
    labels, values = targets(y)
    samples, own = whole(x)
    channels = blocks[0].channels
    seen = (-1, channels) if last else (channels, -1)
    arrays = samples.reshape(len(samples), x.shape[1], *seen).numpy(), bool(own), last
    batches = labels, values, rows.contiguous().numpy(), counts.contiguous().numpy()
    layers = np.array(wide), heads, turned, z, d, slope, zeros
    rest = (
        LOSSES[loss], rule.array(bool(pulled.any())), moves, weights.numpy(), lr.contiguous().numpy(),
        scale.contiguous().numpy(), pulled, shift.contiguous().numpy(),
    )  # fmt: skip
    kernel = kernels("convolved").train

    def run(begin: int, end: int) -> None:
        memory = np.empty(plan.size + 16, np.float32)
        kernel(begin, end, memory, plan.table, table, ACTIVATIONS[activation], *arrays, *batches, *layers, *rest)

    spread(clients, run)


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
