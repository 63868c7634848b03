"""The papers' convolutional networks: FedConv's and EchoPFL's small image nets, Centaur's ConvNet for
activity windows.

Max-pooling comes before the activation: both are monotone, so the function is the same and a quarter of the
values are activated. Memory in `channels_last` order stays so from layer to layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from potluck.errors import BadInput, Code
from potluck.models.dense import activate, chained, linears
from potluck.models.layers import Dropout, Norm
from potluck.models.layers import norm as make_norm
from potluck.models.model import Convolution, Convolutions
from potluck.models.settings import Activation, Count, Counts, Share, Size


def image_shape(model: str, shape: Sequence[int], image: Sequence[int]) -> tuple[int, int, int]:
    """Return the (channels, height, width) of a sample: its own, a single plane, or the `image` setting."""
    if image:
        if len(image) != 3 or prod(image) != prod(shape):
            given = f"{list(image)} was given for samples of shape {tuple(shape)}"
            raise BadInput(
                Code.MODEL_SHAPE, f"model.image: {given}; three sizes of the same number of values are allowed."
            )
        shape = image
    if len(shape) == 2:
        shape = (1, *shape)
    if len(shape) != 3:
        hint = "it takes (channels, height, width), or any shape with image = [channels, height, width]"
        raise BadInput(Code.MODEL_SHAPE, f"model: {model} was asked for samples of shape {tuple(shape)}; {hint}.")
    channels, height, width = shape
    return channels, height, width


class Cnn(nn.Module):
    """Convolutions, each with an optional norm, max-pooling and activation, then linear layers."""

    kind = "conv"

    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        *,
        channels: Counts = (16, 32),
        kernel: Count = 3,
        padding: Size = 1,
        stride: Count = 1,
        pool: Count = 2,
        norm: Norm = "none",
        groups: Count = 8,
        activation: Activation = "relu",
        hidden: Counts = (),
        dropout: Share = 0.0,
        image: Counts = (),
    ) -> None:
        super().__init__()
        self.image = image_shape("cnn", shape, image)
        self.pool, self.activation = pool, activation
        inputs, *sides = self.image
        self.blocks = [(f"conv{i}", f"norm{i}") for i in range(1, len(channels) + 1)]
        for (conv_name, norm_name), outputs in zip(self.blocks, channels, strict=True):
            self.add_module(conv_name, nn.Conv2d(inputs, outputs, kernel, stride, padding))
            self.add_module(norm_name, make_norm(norm, outputs, groups))
            before = tuple(sides)
            sides = [((side + 2 * padding - kernel) // stride + 1) // pool for side in sides]
            if min(sides) < 1:
                what = f"kernel {kernel}, padding {padding}, stride {stride}, pool {pool}"
                raise BadInput(
                    Code.MODEL_SHAPE,
                    f"model: {tuple(shape)} is too small; {conv_name} ({what}) leaves nothing of {before}.",
                )
            inputs = outputs
        self.plain = norm == "none" and not dropout
        self.step, self.border = stride, padding
        self.drop = Dropout(dropout)
        self.heads = linears(self, (inputs * prod(sides), *hidden, classes))

    def forward(self, x: Tensor) -> Tensor:
        x = x.reshape(x.shape[0], *self.image)
        for conv_name, norm_name in self.blocks:
            x = self.get_submodule(norm_name)(self.get_submodule(conv_name)(x))
            x = activate(self.activation, F.max_pool2d(x, self.pool) if self.pool > 1 else x)
        x = self.drop(x.flatten(1))
        for name in self.heads[:-1]:
            x = activate(self.activation, self.get_submodule(name)(x))
        out: Tensor = self.get_submodule(self.heads[-1])(x)
        return out

    def convolved(self) -> Convolutions | None:
        if not self.plain:
            return None
        pairs = [(size, size) for size in (self.step, self.border, self.pool)]
        blocks = [Convolution(f"{name}.weight", f"{name}.bias", *pairs) for name, _ in self.blocks]
        return Convolutions(self.image, False, self.activation, blocks, chained(self.heads, self.activation))


Block = tuple[tuple[int, int], tuple[int, int]]  # (kernel, stride), each (sensors, time)
_START: tuple[Block, ...] = (((1, 5), (1, 1)), ((1, 5), (1, 2)), ((1, 5), (1, 2)))
_BLOCKS: dict[str, tuple[Block, ...]] = {
    "short": (*_START, ((3, 3), (1, 1)), ((3, 3), (1, 2)), ((1, 3), (2, 2))),  # 9 x 128
    "long": (*_START, ((3, 5), (2, 2)), ((3, 5), (2, 2)), ((1, 5), (2, 2))),  # 27 x 200
}
HEADS = {"small": (), "medium": (64,), "large": (128,)}


class ConvNet(nn.Module):
    """Six convolutions over sensors and time; the features are the mean over all positions."""

    kind = "conv"

    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        *,
        width: Count = 64,
        features: Count = 100,
        form: Literal["auto", "short", "long"] = "auto",
        norm: Norm = "group",
        groups: Count = 8,
        dropout: Share = 0.5,
        classifier: Literal["small", "medium", "large"] = "small",
        classifier_relu: bool = False,
    ) -> None:
        if len(shape) != 2:
            raise BadInput(
                Code.MODEL_SHAPE,
                f"model: convnet was asked for samples of shape {tuple(shape)}; it takes (time, channels).",
            )
        super().__init__()
        self.classifier_relu = classifier_relu
        steps, sensors = shape
        chosen = form if form != "auto" else "long" if steps >= 200 else "short"
        self.blocks = [(f"conv{i}", f"norm{i}") for i in range(1, 7)]
        inputs, sides = 1, (sensors, steps)
        for i, (kernel, stride) in enumerate(_BLOCKS[chosen]):
            conv_name, norm_name = self.blocks[i]
            outputs = features if i == 5 else width
            # For windows smaller than the paper's, kernels shrink to the size that is left.
            fitting = (min(kernel[0], sides[0]), min(kernel[1], sides[1]))
            self.add_module(conv_name, nn.Conv2d(inputs, outputs, fitting, stride))
            self.add_module(norm_name, make_norm(norm, outputs, groups))
            sides = ((sides[0] - fitting[0]) // stride[0] + 1, (sides[1] - fitting[1]) // stride[1] + 1)
            inputs = outputs
        self.drop = Dropout(dropout)
        self.heads = linears(self, (features, *HEADS[classifier], classes))
        self.head_drop = Dropout(0.2 if HEADS[classifier] else 0.0)
        for name in self.heads:
            nn.init.xavier_uniform_(self.get_submodule(name).get_parameter("weight"))

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(1, 2).unsqueeze(1)  # one plane, sensors x time
        for conv_name, norm_name in self.blocks:
            x = F.leaky_relu(self.get_submodule(norm_name)(self.get_submodule(conv_name)(x)))
        x = self.drop(x.mean((2, 3)))
        for name in self.heads[:-1]:
            x = self.get_submodule(name)(x)
            x = self.head_drop(x.relu() if self.classifier_relu else x)
        out: Tensor = self.get_submodule(self.heads[-1])(x)
        return out
