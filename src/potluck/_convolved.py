"""Training of small convolutional networks by compiled kernels: convolutions with max-pooling, then linear layers.

The kernels (`potluck.compiled.convolved`) take a client's weights as one row of numbers, with the channels last, and
the whole of its training as one call. The numbers are those of the textbook loop to rounding. Where kernels cannot be
used, `net_of` answers None, and the caller goes on with PyTorch's convolutions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from potluck._descent import Pull
from potluck._whole import train
from potluck.compiled import images, stack
from potluck.compiled.images import Block
from potluck.fleet import Data, Params
from potluck.models import Model

LARGEST = 1 << 22  # weights: larger networks are what PyTorch is for


class Form(NamedTuple):
    """How a tensor of the model stands in a row of numbers: seen with `shape`, and its axes in this order."""

    name: str
    own: tuple[int, ...]
    shape: tuple[int, ...]
    order: tuple[int, ...]

    def row(self, stacked: Tensor) -> Tensor:
        seen = stacked.reshape(len(stacked), *self.shape)
        return seen.permute(0, *(axis + 1 for axis in self.order)).flatten(1)

    def back(self, rows: Tensor) -> Tensor:
        turned = rows.reshape(len(rows), *(self.shape[axis] for axis in self.order))
        back = sorted(range(len(self.order)), key=self.order.__getitem__)
        return turned.permute(0, *(axis + 1 for axis in back)).reshape(len(rows), *self.own)


@dataclass(frozen=True)
class Net:
    """A network as the kernels know it."""

    blocks: tuple[Block, ...]
    wide: tuple[int, ...]  # of the linear layers
    activation: str
    last: bool  # whether samples have their channels last
    forms: tuple[Form, ...]

    @property
    def counts(self) -> list[int]:
        return [prod(form.own) for form in self.forms]


def net_of(model: Model, weights: Params, data: Data) -> Net | None:
    """The network, if kernels can train it on such samples."""
    layers = model.convolved()
    if layers is None or not model.task.fused or not stack.fits(data.x, *weights.values()):
        return None
    if any(name not in weights for name in model.trainable) or len(weights) != len(model.trainable):
        return None
    channels, *sides = layers.image
    forms: list[Form] = []
    blocks = []
    for layer in layers.blocks:
        outputs, inputs, *kernel = weights[layer.weight].shape
        if inputs != channels or len(kernel) > 2:
            return None
        order: tuple[int, ...] = (2, 1, 0) if len(kernel) == 1 else (2, 3, 1, 0)
        forms += [_plain(weights, layer.weight, order), _plain(weights, layer.bias)]
        ky, kx = (1, *kernel) if len(kernel) == 1 else kernel
        block = Block(channels, sides[0], sides[1], outputs, ky, kx, layer.stride, layer.padding, layer.pool)
        blocks.append(block)
        channels, sides = outputs, [*block.pooled]
    wide = [channels * prod(sides)]
    for i, head in enumerate(layers.heads):
        outputs, inputs = weights[head.weight].shape
        if inputs != wide[-1] or head.bias is None:
            return None
        seen = (outputs, channels, prod(sides)) if i == 0 else (outputs, inputs)
        order = (2, 1, 0) if i == 0 else (1, 0)
        forms += [Form(head.weight, (outputs, inputs), seen, order), _plain(weights, head.bias)]
        wide.append(outputs)
    net = Net(tuple(blocks), tuple(wide), layers.activation, layers.last, tuple(forms))
    return net if sum(net.counts) <= LARGEST else None


def _plain(weights: Params, name: str, order: tuple[int, ...] = (0,)) -> Form:
    shape = tuple(weights[name].shape)
    return Form(name, shape, shape, order)


def descend(
    model: Model,
    net: Net,
    weights: Params,
    data: Data,
    rows: Tensor,
    counts: Tensor,
    lr: float | Tensor,
    moving: frozenset[str],
    momentum: float = 0.0,
    adam: bool = False,
    clip: float = 0.0,
    pull: Pull | None = None,
) -> Params:
    """Train. A pull comes after the gradient is clipped."""
    names = [form.name for form in net.forms]
    moves = frozenset(name for name in names if name in moving)
    named = frozenset() if pull is None else frozenset(names if pull.shift is None else pull.shift)
    shift = [_constant(pull, name, weights[name]) for name in names if name in named] if pull else []
    plan = _Plan(net, model.loss, moves, named, momentum, adam, clip)
    numbers = [torch.as_tensor(value, dtype=torch.float32) for value in (lr, pull.scale if pull else 0.0)]
    y = model.task.standardised(data.y)
    values = [weights[name] for name in names]
    out = train(plan, data.x, y, rows, counts, *numbers, *shift, *values)
    trained = dict(zip(names, out, strict=True))
    return {name: trained[name] if name in moves else value for name, value in weights.items()}


def slopes(model: Model, net: Net, data: Data, batch: int) -> images.Slopes:
    """The gradient of the mean loss over mini-batches of these samples, by weights in the order of `net.forms`."""
    y = model.task.standardised(data.y)
    shape = net.blocks, net.wide, net.activation, net.last
    return images.Slopes(data.x[None], y[None], batch, sum(net.counts), model.loss, *shape)


def answers(net: Net, x: Tensor) -> images.Answers:
    """The outputs for these samples, of weights in the order of `net.forms`."""
    return images.Answers(x, sum(net.counts), net.blocks, net.wide, net.activation, net.last)


def _constant(pull: Pull, name: str, like: Tensor) -> Tensor:
    value = pull.constant(name)
    return value if isinstance(value, Tensor) else torch.full_like(like, value)


@dataclass(frozen=True)
class _Plan:
    """What is the same for every client of a stack."""

    net: Net
    loss: str
    moves: frozenset[str]
    pulled: frozenset[str]
    momentum: float
    adam: bool
    clip: float

    def train(self, x: Tensor, y: Tensor, rows: Tensor, counts: Tensor, rest: Sequence[Tensor]) -> list[Tensor]:
        net = self.net
        lr, scale, *left = rest
        given, shift = left[-len(net.forms) :], left[: -len(net.forms)]
        weights = torch.cat([form.row(value) for form, value in zip(net.forms, given, strict=True)], 1)
        constant = torch.zeros_like(weights) if self.pulled else weights[:, :0]
        cuts = [0]
        for count in net.counts:
            cuts.append(cuts[-1] + count)
        named = [pair for pair in zip(net.forms, pairwise(cuts), strict=True) if pair[0].name in self.pulled]
        for (form, (a, b)), value in zip(named, shift, strict=True):
            constant[:, a:b] = form.row(value)
        images.train(
            x, y, rows, counts, weights, lr, scale, constant, _per_weight(net, self.moves),
            _per_weight(net, self.pulled), images.Rule(self.momentum, self.adam, self.clip, False), self.loss,
            net.blocks, net.wide, net.activation, net.last,
        )  # fmt: skip
        parts = torch.split(weights, net.counts, 1)
        return [form.back(part) for form, part in zip(net.forms, parts, strict=True)]


@lru_cache(8)
def _per_weight(net: Net, names: frozenset[str]) -> Any:
    """1 for each number of the tensors named, and 0 for the others."""
    marks = torch.tensor([float(form.name in names) for form in net.forms])
    return torch.repeat_interleave(marks, torch.tensor(net.counts)).numpy()
