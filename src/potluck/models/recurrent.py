"""GRU, LSTM and plain tanh networks over (time steps, channels), read at the last valid step."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from potluck.errors import Code, must_be
from potluck.models.layers import Dropout
from potluck.models.scan import CELLS, scan
from potluck.models.settings import Count, Share


class Recurrent(nn.Module):
    """One recurrent layer, (batch, time, channels) -> (batch, time, hidden); weights as in torch.nn's."""

    def __init__(self, cell: Literal["gru", "lstm", "rnn"], inputs: int, hidden: int) -> None:
        super().__init__()
        self.cell = CELLS[cell]
        width, bound = self.cell.gates * hidden, 1.0 / sqrt(hidden)
        self.weight_ih = nn.Parameter(torch.empty(width, inputs).uniform_(-bound, bound))
        self.weight_hh = nn.Parameter(torch.empty(width, hidden).uniform_(-bound, bound))
        self.bias_ih = nn.Parameter(torch.empty(width).uniform_(-bound, bound))
        self.bias_hh = nn.Parameter(torch.empty(width).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        return scan(self.cell, F.linear(x, self.weight_ih, self.bias_ih), self.weight_hh, self.bias_hh)


def last_valid(states: Tensor, length: Tensor | None) -> Tensor:
    """Return the state at step `length` of each sequence; an empty sequence is read at its first step."""
    if length is None:
        return states[:, -1]
    at = (length.long() - 1).clamp(0, states.shape[1] - 1)
    return states.gather(1, at[:, None, None].expand(-1, 1, states.shape[-1])).squeeze(1)


class RecurrentNet(nn.Module):
    kind = "recurrent"
    cell: Literal["gru", "lstm", "rnn"]

    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        *,
        hidden: Count = 32,
        layers: Count = 1,
        dropout: Share = 0.0,
    ) -> None:
        if len(shape) != 2:
            where = f"model: samples for {self.cell}"
            raise must_be(Code.MODEL_SHAPE, where, "of shape (time, channels)", tuple(shape))
        super().__init__()
        self.names = [f"{self.cell}{i}" for i in range(1, layers + 1)]
        for i, name in enumerate(self.names):
            self.add_module(name, Recurrent(self.cell, hidden if i else shape[1], hidden))
        self.drop = Dropout(dropout)
        self.fc = nn.Linear(hidden, classes)

    def scanned(self) -> str | None:
        """Kernels know one layer without dropout."""
        return self.cell if len(self.names) == 1 and not self.drop.share else None

    def forward(self, x: Tensor, length: Tensor | None = None) -> Tensor:
        for name in self.names:
            x = self.get_submodule(name)(x)
        out: Tensor = self.fc(self.drop(last_valid(x, length)))
        return out


class Gru(RecurrentNet):
    cell = "gru"


class Lstm(RecurrentNet):
    cell = "lstm"


class Rnn(RecurrentNet):
    cell = "rnn"


class BiLstm(nn.Module):
    """One LSTM forwards and one backwards over the valid steps, read at the end of each."""

    kind = "recurrent"

    def __init__(self, shape: Sequence[int], classes: int, *, hidden: Count = 32, dropout: Share = 0.0) -> None:
        if len(shape) != 2:
            raise must_be(Code.MODEL_SHAPE, "model: samples for bilstm", "of shape (time, channels)", tuple(shape))
        super().__init__()
        self.ahead = Recurrent("lstm", shape[1], hidden)
        self.back = Recurrent("lstm", shape[1], hidden)
        self.drop = Dropout(dropout)
        self.fc = nn.Linear(2 * hidden, classes)

    def forward(self, x: Tensor, length: Tensor | None = None) -> Tensor:
        ends = (last_valid(self.ahead(x), length), last_valid(self.back(_reversed(x, length)), length))
        out: Tensor = self.fc(self.drop(torch.cat(ends, 1)))
        return out


def _reversed(x: Tensor, length: Tensor | None) -> Tensor:
    """Reverse the valid steps; padding stays at the end."""
    if length is None:
        return x.flip(1)
    steps = torch.arange(x.shape[1])
    back = length.long()[:, None] - 1 - steps
    at = torch.where(back >= 0, back, steps)
    return x.gather(1, at.unsqueeze(-1).expand(x.shape))
