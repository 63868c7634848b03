"""Linear layers on the flattened sample: softmax regression, linear SVM, multi-layer perceptron."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor, nn

from potluck.models.layers import Dropout
from potluck.models.model import Layer
from potluck.models.settings import Activation, Counts, Share


def linears(module: nn.Module, sizes: Sequence[int]) -> list[str]:
    """Add a chain of linear layers to a module: `fc` when there is one, else `fc1`, `fc2` and so on."""
    names = ["fc"] if len(sizes) == 2 else [f"fc{i}" for i in range(1, len(sizes))]
    for name, inputs, outputs in zip(names, sizes, sizes[1:], strict=False):
        module.add_module(name, nn.Linear(inputs, outputs))
    return names


def activate(name: Activation, x: Tensor) -> Tensor:
    return torch.relu(x) if name == "relu" else torch.tanh(x)


def chained(names: Sequence[str], activation: Activation) -> list[Layer]:
    """The layers of `linears`, as kernels know them: the last one has no activation."""
    return [Layer(f"{name}.weight", f"{name}.bias", "none" if name == names[-1] else activation) for name in names]


class Dense(nn.Module):
    kind = "dense"

    def __init__(self, sizes: Sequence[int], activation: Activation = "relu", dropout: float = 0.0) -> None:
        super().__init__()
        self.activation: Activation = activation
        self.names = linears(self, sizes)
        self.dropout = dropout
        self.drops = nn.ModuleList(Dropout(dropout) for _ in self.names[:-1])

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        for name, drop in zip(self.names, self.drops, strict=False):
            x = drop(activate(self.activation, self.get_submodule(name)(x)))
        out: Tensor = self.get_submodule(self.names[-1])(x)
        return out

    def chain(self) -> list[Layer] | None:
        if self.dropout:
            return None
        return chained(self.names, self.activation)


class Softmax(Dense):
    def __init__(self, shape: Sequence[int], classes: int) -> None:
        super().__init__((prod(shape), classes))


class Svm(Softmax):
    loss = "hinge"


class Mlp(Dense):
    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        *,
        hidden: Counts = (128,),
        activation: Activation = "relu",
        dropout: Share = 0.0,
    ) -> None:
        super().__init__((prod(shape), *hidden, classes), activation, dropout)
