"""A compact image encoder for constrained devices: depthwise-separable convolutions, then a small classifier.

The building block is that of MobileNet (Howard et al., 2017): a 3x3 convolution per channel, then a 1x1 convolution
across channels. The mean over all positions feeds one of Centaur's classifiers (small, medium, large).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn

from potluck.errors import Code, must_be
from potluck.models.conv import HEADS, image_shape
from potluck.models.dense import linears
from potluck.models.layers import Dropout, Norm
from potluck.models.layers import norm as make_norm
from potluck.models.settings import Count, Counts, Share


class Separable(nn.Module):
    """3x3 per channel, 1x1 across channels, each with a norm and an activation."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm, groups: int) -> None:
        super().__init__()
        self.depth = nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=norm == "none")
        self.norm1 = make_norm(norm, inputs, groups)
        self.point = nn.Conv2d(inputs, outputs, 1, bias=norm == "none")
        self.norm2 = make_norm(norm, outputs, groups)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(self.depth(x)).relu()
        out: Tensor = self.norm2(self.point(x)).relu()
        return out


class Compact(nn.Module):
    """A first convolution, separable blocks that halve the image and widen it, the mean, a classifier."""

    kind = "conv"

    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        *,
        width: Count = 16,
        blocks: Count = 4,
        norm: Norm = "group",
        groups: Count = 8,
        dropout: Share = 0.2,
        classifier: Literal["small", "medium", "large"] = "small",
        classifier_relu: bool = False,
        image: Counts = (),
    ) -> None:
        super().__init__()
        self.image = image_shape("compact", shape, image)
        if min(self.image[1:]) < 4:
            shown = f"{self.image[1:]}"
            raise must_be(Code.MODEL_SHAPE, "model: images for compact", "4 x 4 or larger", shown=shown)
        self.classifier_relu = classifier_relu
        self.first = nn.Conv2d(self.image[0], width, 3, 1, 1, bias=norm == "none")
        self.first_norm = make_norm(norm, width, groups)
        self.names = [f"block{i}" for i in range(1, blocks + 1)]
        inputs, side = width, min(self.image[1:])
        for i, name in enumerate(self.names):
            # Every other block doubles the channels and halves the image while it can be halved.
            wider = i % 2 == 0
            stride = 2 if wider and side >= 4 else 1
            outputs = 2 * inputs if wider else inputs
            self.add_module(name, Separable(inputs, outputs, stride, norm, groups))
            inputs, side = outputs, -(-side // stride)
        self.drop = Dropout(dropout)
        self.heads = linears(self, (inputs, *HEADS[classifier], classes))
        self.head_drop = Dropout(0.2 if HEADS[classifier] else 0.0)
        for name in self.heads:
            nn.init.xavier_uniform_(self.get_submodule(name).get_parameter("weight"))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first_norm(self.first(x.reshape(x.shape[0], *self.image))).relu()
        for name in self.names:
            x = self.get_submodule(name)(x)
        x = self.drop(x.mean((2, 3)))
        for name in self.heads[:-1]:
            x = self.get_submodule(name)(x)
            x = self.head_drop(x.relu() if self.classifier_relu else x)
        out: Tensor = self.get_submodule(self.heads[-1])(x)
        return out
