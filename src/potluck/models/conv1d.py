"""A small 1-D convolutional network over (time steps, channels): convolutions with max-pooling, then linear layers."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from potluck.errors import Code, must_be
from potluck.models.dense import activate, chained, linears
from potluck.models.model import Convolution, Convolutions
from potluck.models.settings import Activation, Count, Counts, Size


class Cnn1d(nn.Module):
    kind = "conv"

    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        *,
        channels: Counts = (8, 16),
        kernel: Count = 5,
        stride: Count = 1,
        padding: Size = 2,
        pool: Count = 2,
        hidden: Counts = (),
        activation: Activation = "relu",
    ) -> None:
        if len(shape) != 2:
            raise must_be(Code.MODEL_SHAPE, "model: samples for cnn1d", "of shape (time, channels)", tuple(shape))
        super().__init__()
        self.pool, self.activation = pool, activation
        self.shape, self.step, self.border = shape, stride, padding
        self.convs: list[str] = []
        length, inputs = shape
        for i, outputs in enumerate(channels, 1):
            self.convs.append(f"conv{i}")
            self.add_module(f"conv{i}", nn.Conv1d(inputs, outputs, kernel, stride, padding))
            length, inputs = ((length + 2 * padding - kernel) // stride + 1) // pool, outputs
            if length < 1:
                raise must_be(Code.MODEL_SHAPE, "model: samples for cnn1d", "longer than its kernels", tuple(shape))
        self.names = linears(self, (length * inputs, *hidden, classes))

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(1, 2)
        for name in self.convs:
            x = self.get_submodule(name)(x)
            x = activate(self.activation, F.max_pool1d(x, self.pool) if self.pool > 1 else x)
        x = x.flatten(1)
        for name in self.names[:-1]:
            x = activate(self.activation, self.get_submodule(name)(x))
        out: Tensor = self.get_submodule(self.names[-1])(x)
        return out

    def convolved(self) -> Convolutions | None:
        pairs = (1, self.step), (0, self.border), (1, self.pool)
        blocks = [Convolution(f"{name}.weight", f"{name}.bias", *pairs) for name in self.convs]
        length, channels = self.shape
        return Convolutions((channels, 1, length), True, self.activation, blocks, chained(self.names, self.activation))
