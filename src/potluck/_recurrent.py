"""Training of stacks of small recurrent networks by compiled kernels: CFC, GRU, LSTM and tanh networks of one layer.

The kernels (`potluck.compiled.recurrent`) take a client's weights as one row of numbers, and the whole of its training
as one call. The numbers are those of the textbook loop to rounding. Where kernels cannot be used, `net_of` answers
None, and the caller goes on with stacked tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Literal

import torch
from torch import Tensor

from potluck._descent import Pull
from potluck._whole import train
from potluck.compiled import sequences, stack
from potluck.fleet import Data, Params
from potluck.models import Model
from potluck.models.cfc import HEADS, as_series, has_hidden, last_layer, spans
from potluck.models.cfc_steps import CEILING, STEEPNESS

GATES = {"no_gate": 0, "gated": 1, "leaky": 2}
LARGEST = 1 << 17  # weights: larger networks leave the cache, and large products are what PyTorch is for


@dataclass(frozen=True)
class Bound:
    """Terms that bind the gradient of one head of a CFC (FedCFC, section 4.3), and what is told of it."""

    head: Literal["f", "g", "h"]
    direction: Tensor  # CUD
    magnitude: Tensor  # CUM
    weights: tuple[float, float, float]  # λd, λm, λa
    target: float  # v
    printed: bool  # R_a as printed
    smallest: float  # norm below which a gradient has no direction
    task: bool  # tell the gradient of the loss, without the terms'


@dataclass(frozen=True)
class Net:
    """A recurrent network as the kernels know it: its tensors in their order, the factor of each, and sizes."""

    cell: str
    names: tuple[str, ...]
    factors: tuple[float, ...]
    shapes: tuple[tuple[int, ...], ...]
    channels: int
    steps: int
    hidden: int
    outputs: int
    backbone: int = 0
    units: tuple[int, int, int] = (0, 0, 0)
    gate: int = 0  # of a CFC, as in GATES

    @property
    def bindable(self) -> bool:
        """Whether kernels know its second derivatives."""
        return self.gate != GATES["leaky"]

    @property
    def counts(self) -> list[int]:
        return [int(torch.Size(shape).numel()) for shape in self.shapes]


def net_of(model: Model, weights: Params, data: Data) -> Net | None:
    """The network, if kernels can train it on such samples."""
    scanned = model.scanned()
    if scanned is None or not model.task.fused or not stack.fits(data.x, *weights.values()):
        return None
    if any(name not in weights for name in model.trainable) or len(weights) != len(model.trainable):
        return None
    steps, channels = as_series(data.x.shape[1:])
    net = _cfc(model, weights, steps, channels) if scanned == "cfc" else _cells(scanned, weights, steps, channels)
    return net if sum(net.counts) <= LARGEST else None


def _cells(cell: str, weights: Params, steps: int, channels: int) -> Net:
    names = (*(f"{cell}1.{part}" for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")), "fc.weight", "fc.bias")
    outputs, hidden = weights["fc.weight"].shape
    return Net(cell, names, (1.0,) * len(names), _shapes(weights, names), channels, steps, hidden, outputs)


def _cfc(model: Model, weights: Params, steps: int, channels: int) -> Net:
    """Factors of the activations go into the weights, as in `models.cfc.unroll`: the kernels compute only tanh."""
    two = [head for head in HEADS if f"{head}.2.weight" in weights]
    last = [last_layer(list(weights), head) for head in HEADS]
    half = {"f": -0.5, "g": 1.0, "h": 1.0}
    factors = {"backbone.weight": STEEPNESS, "backbone.bias": STEEPNESS}
    factors |= {f"{head}.1.weight": STEEPNESS * CEILING for head in two}
    factors |= {f"{head}.1.bias": STEEPNESS for head in two}
    factors |= {name: CEILING * half[name[0]] for name in last}
    factors |= {name.replace("weight", "bias"): half[name[0]] for name in last}
    factors |= {"fc.weight": 1.0, "fc.bias": 1.0}
    names = tuple(factors)
    outputs, hidden = weights["fc.weight"].shape
    f, g, h = (weights[f"{head}.1.weight"].shape[0] if has_hidden(weights, head) else 0 for head in HEADS)
    return Net(
        "cfc", names, tuple(factors.values()), _shapes(weights, names), channels, steps, hidden, outputs,
        weights["backbone.bias"].shape[0], (f, g, h), GATES[model.settings["gate"]],
    )  # fmt: skip


def _shapes(weights: Params, names: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(weights[name].shape) for name in names)


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
    bound: Bound | None = None,
    pull_first: bool = False,
) -> tuple[Params, Tensor]:
    """Train, and add up the gradient that `bound` asks for. A pull comes after the gradient is clipped, or first."""
    moves = frozenset(name for name in net.names if name in moving)
    named = frozenset(net.names if pull is None or pull.shift is None else pull.shift)
    shift = [_constant(pull, name, weights[name]) for name in net.names if name in named] if pull else []
    tau = spans(data.t, float(model.settings.get("interval", 1.0))) if net.cell == "cfc" else None
    aim = () if bound is None else (bound.direction.float(), bound.magnitude.float())
    plan = _Plan(
        net, model.loss, moves, named if pull else frozenset(), momentum, adam, clip, tau is not None,
        data.length is not None, bool(shift), pull_first, None if bound is None else _Terms.of(bound),
    )  # fmt: skip
    numbers = [torch.as_tensor(value, dtype=torch.float32) for value in (lr, pull.scale if pull else 0.0)]
    series = [] if tau is None else [tau.to(data.x.dtype)]
    series += [] if data.length is None else [data.length.long()]
    values = [weights[name] for name in net.names]
    y = model.task.standardised(data.y)
    out = train(plan, data.x, y, rows, counts, *numbers, *series, *aim, *shift, *values)
    trained = dict(zip(net.names, out[:-1], strict=True))
    return {name: trained[name] if name in moves else value for name, value in weights.items()}, out[-1]


def _constant(pull: Pull, name: str, like: Tensor) -> Tensor:
    value = pull.constant(name)
    return value if isinstance(value, Tensor) else torch.full_like(like, value)


@dataclass(frozen=True)
class _Terms:
    head: int
    numbers: tuple[float, ...]
    task: bool

    @staticmethod
    def of(bound: Bound) -> _Terms:
        numbers = (*bound.weights, bound.target, float(bound.printed), bound.smallest)
        return _Terms(HEADS.index(bound.head), numbers, bound.task)


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
    timed: bool
    ragged: bool
    shifted: bool
    pull_first: bool
    terms: _Terms | None

    def train(self, x: Tensor, y: Tensor, rows: Tensor, counts: Tensor, rest: Sequence[Tensor]) -> list[Tensor]:
        net, left = self.net, list(rest)
        lr, scale = left.pop(0), left.pop(0)
        tau = left.pop(0) if self.timed else None
        length = left.pop(0) if self.ragged else None
        aim = (left.pop(0), left.pop(0)) if self.terms is not None else None
        given, shift = left[-len(net.names) :], left[: -len(net.names)]
        weights = _joined(given)
        constant = torch.zeros_like(weights) if self.pulled else weights[:, :0]
        cuts = [0, *accumulate(net.counts)]
        if self.shifted:
            named = [pair for name, pair in zip(net.names, pairwise(cuts), strict=True) if name in self.pulled]
            for (a, b), value in zip(named, shift, strict=True):
                constant[:, a:b] = value.flatten(1)
        lud = sequences.train(
            sequences.Samples(x.reshape(*x.shape[:2], net.steps, net.channels), tau, length),
            y, rows, counts, weights, lr, scale, constant, self._per_weight(self.moves), self._per_weight(self.pulled),
            _spread(net.factors, net.counts), sequences.Rule(self.momentum, self.adam, self.clip, self.pull_first),
            self.loss, net, None if self.terms is None or aim is None else (self.terms, *aim),
        )  # fmt: skip
        parts = torch.split(weights, net.counts, 1)
        return [*(part.reshape(len(part), *shape) for part, shape in zip(parts, net.shapes, strict=True)), lud]

    def _per_weight(self, names: frozenset[str]) -> Any:
        return _spread([float(name in names) for name in self.net.names], self.net.counts)


def _joined(values: Sequence[Tensor]) -> Tensor:
    """Each client's tensors as one row; a new tensor, which training may change."""
    return torch.cat([value.flatten(1) for value in values], 1)


def _spread(numbers: Sequence[float], counts: Sequence[int]) -> Any:
    return torch.repeat_interleave(torch.tensor(numbers, dtype=torch.float32), torch.tensor(counts)).numpy()
