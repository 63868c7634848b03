"""Stacks of recurrent networks to kernels and back."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from potluck.compiled import kernels, spread
from potluck.compiled.places import Plan, cfc_plan, recurrent_plan
from potluck.compiled.stack import LOSSES, targets, whole

Array = Any


class Samples(NamedTuple):
    """K clients with N sequences: x (K, N, T, C), time spans (K, N, T) and lengths (K, N), where there are any."""

    x: Tensor
    tau: Tensor | None
    length: Tensor | None

    def arrays(self) -> tuple[Any, ...]:
        """What the kernels take: x, spans, lengths, whether each client has its own samples, whether lengths count."""
        x, own = whole(self.x)
        tau = np.zeros((1, 1, 1), np.float32) if self.tau is None else self.tau[: len(x)].contiguous().numpy()
        length = np.zeros((1, 1), np.int64) if self.length is None else self.length.contiguous().numpy()
        return x.numpy(), tau, length, bool(own), self.length is not None


class Rule(NamedTuple):
    """How a step is made. The pull comes before the gradient is clipped, or after it.

    A rule that looks makes no step: the gradient of the last batch stands where the weights were (images only).
    """

    momentum: float
    adam: bool
    clip: float
    pulled_first: bool
    look: bool = False

    def array(self, pulled: bool) -> Array:
        first = pulled and self.pulled_first
        return np.array([self.momentum, self.adam, self.clip, pulled and not first, first, self.look], np.float32)


class Net(Protocol):
    """Sizes of a network, as `potluck._recurrent.Net` has them."""

    @property
    def cell(self) -> str: ...
    @property
    def channels(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def hidden(self) -> int: ...
    @property
    def outputs(self) -> int: ...
    @property
    def backbone(self) -> int: ...
    @property
    def units(self) -> tuple[int, int, int]: ...
    @property
    def gate(self) -> int: ...


def plan_of(net: Net, batch: int, timed: bool, bound: bool) -> Plan:
    sizes = net.hidden, net.outputs, net.steps, batch
    if net.cell == "cfc":
        return cfc_plan(net.channels, net.backbone, net.units, *sizes, net.gate, timed, bound)
    return recurrent_plan(net.cell, net.channels, *sizes)


def train(
    samples: Samples, y: Tensor, rows: Tensor, counts: Tensor, weights: Tensor, lr: Tensor, scale: Tensor,
    shift: Tensor, moves: Array, pulled: Array, factor: Array, rule: Rule, loss: str, net: Net,
    bound: tuple[Any, Tensor, Tensor] | None,
) -> Tensor:  # fmt: skip
    """Train a stack, whose weights (K, P) change in place. Return the sums (K, D) of the bound head's gradient."""
    clients, found = len(weights), kernels("recurrent")
    labels, values = targets(y)
    size = rows.shape[2] if bound else min(found.GROUP, rows.shape[2])
    plan = plan_of(net, size, samples.tau is not None, bound is not None)
    head, terms, task = -1, np.zeros(6, np.float32), 0
    cud, cum = torch.zeros((clients, 0)), torch.zeros(clients)
    if bound is not None:
        given, cud, cum = bound
        head, terms, task = given.head, np.array(given.numbers, np.float32), int(given.task)
    lud = torch.zeros((clients, cud.shape[1]))
    numbers = (value.contiguous().numpy() for value in (lr, scale))
    batches = (labels, values, rows.contiguous().numpy(), counts.contiguous().numpy())
    rest = (
        LOSSES[loss], rule.array(bool(pulled.any())), factor, moves, weights.numpy(), *numbers, pulled,
        shift.contiguous().numpy(), head, terms, cud.contiguous().numpy(), cum.contiguous().numpy(), task, lud.numpy(),
    )  # fmt: skip
    arrays = samples.arrays()

    def run(begin: int, end: int) -> None:
        found.train(begin, end, np.empty(plan.size, np.float32), plan.table, *arrays, *batches, *rest)

    spread(clients, run)
    return lud
