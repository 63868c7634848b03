"""Networks that FedCFC's section 3.1 compares a CFC with, small, as `rivals:NAME` for `plateau.py`.

Phased LSTM: Neil et al., NIPS 2016. Lipschitz RNN: Erichson et al., ICLR 2021. ODE-Net: Chen et al., NeurIPS 2018, here
the state between two samples, by Euler's method. CKCNN: Romero et al., ICLR 2022, convolutions as long as the series,
whose kernels a small network of sines gives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from potluck.models.cfc import as_series, spans
from potluck.models.recurrent import last_valid


class _OverTime(nn.Module):
    """A cell over the steps of a series, read at the last valid one."""

    kind = "recurrent"

    def __init__(self, shape: Sequence[int], classes: int, hidden: int, interval: float) -> None:
        super().__init__()
        self.channels, self.hidden, self.interval = as_series(shape)[1], hidden, interval
        self.fc = nn.Linear(hidden, classes)

    def begun(self, x: Tensor) -> tuple[Tensor, ...]:
        return (x.new_zeros((x.shape[0], self.hidden)),)

    def forward(self, x: Tensor, t: Tensor | None = None, length: Tensor | None = None) -> Tensor:
        x = x if x.dim() == 3 else x.flatten(1).unsqueeze(-1)
        tau = spans(t, self.interval)
        clock = torch.arange(x.shape[1], dtype=x.dtype).expand(x.shape[:2]) if tau is None else tau.cumsum(1)
        kept, states = self.begun(x), []
        for step in range(x.shape[1]):
            span = torch.ones_like(x[:, 0, :1]) if tau is None else tau[:, step, None]
            kept = self.step(x[:, step], kept, span, clock[:, step, None])
            states.append(kept[0])
        out: Tensor = self.fc(last_valid(torch.stack(states, 1), length))
        return out

    def step(self, x: Tensor, kept: tuple[Tensor, ...], span: Tensor, now: Tensor) -> tuple[Tensor, ...]:
        raise NotImplementedError


class PhasedLstm(_OverTime):
    OPEN, LEAK = 0.05, 0.001  # share of a period in which a unit is open, and what passes when it is shut

    def __init__(self, shape: Sequence[int], classes: int, hidden: int = 16, interval: float = 1.0) -> None:
        super().__init__(shape, classes, hidden, interval)
        self.gates = nn.Linear(self.channels + hidden, 4 * hidden)
        self.period = nn.Parameter(torch.empty(hidden).uniform_(0.0, 3.0))  # its logarithm
        self.shift = nn.Parameter(torch.rand(hidden))  # in periods

    def begun(self, x: Tensor) -> tuple[Tensor, ...]:
        return super().begun(x) * 2

    def step(self, x: Tensor, kept: tuple[Tensor, ...], span: Tensor, now: Tensor) -> tuple[Tensor, ...]:
        h, c = kept
        i, f, g, o = self.gates(torch.cat((x, h), 1)).chunk(4, 1)
        c_new = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h_new = torch.sigmoid(o) * torch.tanh(c_new)
        phase = torch.remainder(now / self.period.exp() - self.shift, 1.0)
        up, down = 2.0 * phase / self.OPEN, 2.0 - 2.0 * phase / self.OPEN
        k = torch.where(phase < 0.5 * self.OPEN, up, torch.where(phase < self.OPEN, down, self.LEAK * phase))
        return h + k * (h_new - h), c + k * (c_new - c)


class LipschitzRnn(_OverTime):
    BETA, GAMMA, STEP = 0.75, 0.001, 0.1  # antisymmetric part of the matrices, damping, step of Euler's method

    def __init__(self, shape: Sequence[int], classes: int, hidden: int = 16, interval: float = 1.0) -> None:
        super().__init__(shape, classes, hidden, interval)
        self.inputs = nn.Linear(self.channels, hidden)
        self.m = nn.Parameter(torch.randn(hidden, hidden) / hidden**0.5)
        self.n = nn.Parameter(torch.randn(hidden, hidden) / hidden**0.5)

    def _matrix(self, m: Tensor) -> Tensor:
        return (1 - self.BETA) * (m + m.T) + self.BETA * (m - m.T) - self.GAMMA * torch.eye(self.hidden)

    def step(self, x: Tensor, kept: tuple[Tensor, ...], span: Tensor, now: Tensor) -> tuple[Tensor, ...]:
        (h,) = kept
        change = h @ self._matrix(self.m).T + torch.tanh(h @ self._matrix(self.n).T + self.inputs(x))
        return (h + self.STEP * change,)


class OdeNet(_OverTime):
    STEPS = 3  # of Euler's method between two samples

    def __init__(self, shape: Sequence[int], classes: int, hidden: int = 16, interval: float = 1.0) -> None:
        super().__init__(shape, classes, hidden, interval)
        self.first = nn.Linear(self.channels + hidden, 2 * hidden)
        self.second = nn.Linear(2 * hidden, hidden)

    def step(self, x: Tensor, kept: tuple[Tensor, ...], span: Tensor, now: Tensor) -> tuple[Tensor, ...]:
        (h,) = kept
        for _ in range(self.STEPS):
            h = h + span / self.STEPS * (torch.tanh(self.second(torch.tanh(self.first(torch.cat((x, h), 1))))) - h)
        return (h,)


class CkCnn(nn.Module):
    """Two blocks of causal convolutions over the whole series, and a mean over time."""

    kind = "other"
    OMEGA, UNITS = 30.0, 16  # frequency of the kernels' sines, and units of their networks

    def __init__(self, shape: Sequence[int], classes: int, hidden: int = 16) -> None:
        super().__init__()
        self.steps, channels = as_series(shape)
        self.widths = (channels, hidden, hidden)
        for k, (a, b) in enumerate(zip(self.widths, self.widths[1:], strict=False), 1):
            net = nn.ModuleList(
                [nn.Linear(1, self.UNITS), nn.Linear(self.UNITS, self.UNITS), nn.Linear(self.UNITS, a * b)]
            )
            nn.init.uniform_(net[0].weight, -1.0, 1.0)
            nn.init.uniform_(
                net[1].weight, -math.sqrt(6 / self.UNITS) / self.OMEGA, math.sqrt(6 / self.UNITS) / self.OMEGA
            )
            nn.init.normal_(net[2].weight, std=(a * self.steps * self.UNITS / 4) ** -0.5)
            nn.init.zeros_(net[2].bias)
            self.add_module(f"kernel{k}", net)
            self.add_module(f"mix{k}", nn.Linear(b, b))
        self.fc = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = (x if x.dim() == 3 else x.flatten(1).unsqueeze(-1)).transpose(1, 2)
        place = torch.linspace(-1.0, 1.0, self.steps)[:, None]
        for k, (a, b) in enumerate(zip(self.widths, self.widths[1:], strict=False), 1):
            first, second, third = self.get_submodule(f"kernel{k}")  # type: ignore[misc]
            values = third(torch.sin(self.OMEGA * second(torch.sin(self.OMEGA * first(place)))))
            y = F.conv1d(F.pad(x, (self.steps - 1, 0)), values.T.view(b, a, self.steps))
            y = torch.relu(self.get_submodule(f"mix{k}")(y.transpose(1, 2)).transpose(1, 2))
            x = x + y if a == b else y
        out: Tensor = self.fc(x.mean(2))
        return out
