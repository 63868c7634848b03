"""ResNet-18 for small images (He et al., CVPR 2016): 3x3 first convolution, no max-pooling."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from potluck.models.conv import image_shape
from potluck.models.layers import Norm
from potluck.models.layers import norm as make_norm
from potluck.models.settings import Count, Counts


def _conv(inputs: int, outputs: int, kernel: int, stride: int, norm: Norm) -> nn.Conv2d:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=norm == "none")
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    if conv.bias is not None:
        nn.init.zeros_(conv.bias)
    return conv


class BasicBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm, groups: int) -> None:
        super().__init__()
        self.conv1 = _conv(inputs, outputs, 3, stride, norm)
        self.norm1 = make_norm(norm, outputs, groups)
        self.conv2 = _conv(outputs, outputs, 3, 1, norm)
        self.norm2 = make_norm(norm, outputs, groups)
        if norm == "none":  # eight blocks would each double the variance: let every branch start at zero
            nn.init.zeros_(self.conv2.weight)
        self.turns = stride != 1 or inputs != outputs
        if self.turns:
            self.shortcut = _conv(inputs, outputs, 1, stride, norm)
            self.shortcut_norm = make_norm(norm, outputs, groups)

    def forward(self, x: Tensor) -> Tensor:
        out = torch.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        return torch.relu(out + (self.shortcut_norm(self.shortcut(x)) if self.turns else x))


class ResNet18(nn.Module):
    kind = "conv"

    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        *,
        width: Count = 64,
        norm: Norm = "group",
        groups: Count = 8,
        image: Counts = (),
    ) -> None:
        super().__init__()
        self.image = image_shape("resnet18", shape, image)
        self.conv = _conv(self.image[0], width, 3, 1, norm)
        self.norm = make_norm(norm, width, groups)
        self.names = [f"block{i}" for i in range(1, 9)]
        inputs = width
        for i, name in enumerate(self.names):
            stage = i // 2
            stride = 2 if stage and i % 2 == 0 else 1
            self.add_module(name, BasicBlock(inputs, width << stage, stride, norm, groups))
            inputs = width << stage
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.conv(x.reshape(x.shape[0], *self.image))))
        for name in self.names:
            x = self.get_submodule(name)(x)
        out: Tensor = self.fc(x.mean((2, 3)))
        return out
