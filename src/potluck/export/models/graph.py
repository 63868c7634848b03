"""A trained network as a list of operations on one sample, from raw values to scores.

Both writers walk over it: `onnx_file` and `c_file`. Shapes are those of one sample, without the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Op:
    """One operation: what it reads (positions in the list), what it gives, its numbers and its settings."""

    kind: str
    inputs: tuple[int, ...]
    shape: tuple[int, ...]
    weights: Mapping[str, Tensor] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


class Graph:
    """Operations in the order of their computation; the first is the raw sample, the last gives the scores."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.ops = [Op("input", (), shape)]

    def shape(self, at: int) -> tuple[int, ...]:
        return self.ops[at].shape

    def add(
        self,
        kind: str,
        inputs: tuple[int, ...],
        shape: tuple[int, ...],
        weights: Mapping[str, Tensor] | None = None,
        **settings: Any,
    ) -> int:
        """Append an operation and return its position."""
        plain = {name: value.detach().to(torch.float32).contiguous() for name, value in (weights or {}).items()}
        self.ops.append(Op(kind, inputs, tuple(int(side) for side in shape), plain, settings))
        return len(self.ops) - 1

    def reshape(self, x: int, shape: tuple[int, ...]) -> int:
        return x if self.shape(x) == shape else self.add("reshape", (x,), shape)

    def flat(self, x: int) -> int:
        return self.reshape(x, (prod(self.shape(x)),))

    def permute(self, x: int, order: tuple[int, ...]) -> int:
        return self.add("permute", (x,), tuple(self.shape(x)[axis] for axis in order), order=order)

    def act(self, x: int, name: str) -> int:
        """relu, tanh, leaky_relu or sigmoid of every value."""
        return self.add("act", (x,), self.shape(x), name=name)

    def linear(self, x: int, weight: Tensor, bias: Tensor) -> int:
        return self.add("linear", (x,), (weight.shape[0],), {"weight": weight, "bias": bias})

    def conv(
        self,
        x: int,
        weight: Tensor,
        bias: Tensor | None,
        stride: tuple[int, int],
        padding: tuple[int, int],
        groups: int = 1,
    ) -> int:
        """A 2-D convolution of (channels, height, width)."""
        sides = self.shape(x)[1:]
        out = tuple(
            (side + 2 * pad - size) // step + 1
            for side, pad, size, step in zip(sides, padding, weight.shape[2:], stride, strict=True)
        )
        given = {"weight": weight, "bias": torch.zeros(weight.shape[0]) if bias is None else bias}
        return self.add("conv", (x,), (weight.shape[0], *out), given, stride=stride, padding=padding, groups=groups)

    def pool(self, x: int, size: tuple[int, int]) -> int:
        """The maximum of each tile; what is left at the edges is dropped."""
        channels, height, width = self.shape(x)
        return self.add("pool", (x,), (channels, height // size[0], width // size[1]), size=size)

    def mean(self, x: int) -> int:
        """The mean over all positions of each channel."""
        return self.add("mean", (x,), self.shape(x)[:1])
