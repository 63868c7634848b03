"""Continuous-time networks: the closed-form one (CFC) that FedCFC trains, and the LTC it approximates.

CFC: Hasani et al., "Closed-form continuous-time neural networks", Nature Machine Intelligence 2022, in the form of Dai
and Tan, "FedCFC", section 2.2: with input i, state x and the time tau since the sample before, in nominal intervals,

    z  = act(B [i; x] + b)                               backbone
    x' = σ(-f(z) tau) ⊙ g(z) + h(z)                      `no_gate`, the paper's
    x' = s ⊙ g(z) + (1 - s) ⊙ h(z), s = σ(-f(z) tau)     `gated`
    x' = s ⊙ x + (1 - s) ⊙ y                             `leaky`, ours, with `time_bias` and `mixed` in `cfc_steps`

f, g and h have one or two layers; hidden layers use the backbone's activation, g and h end in tanh, f is linear. σ is
the logistic function. The networks usually called ff1 and ff2 are h and g; the time heads are f. Here every sequence
has its own time spans, which known libraries get wrong for batches. LTC: Hasani et al., AAAI 2021, the fused solver.

x is not a term of x', so random weights forget within a few steps, or are chaotic. `init = "memory"` starts with
h(z) ≈ x for small states, so the state persists until training changes that; units of a leaky cell start with rates
from fast to slow. `xavier` is the usual initialisation.

Axes: B batch, T time steps, H backbone, J first layers of the heads together, N hidden units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from pydantic import AfterValidator, Field
from torch import Tensor, nn

from potluck.errors import BadInput, Code
from potluck.fleet import Params
from potluck.models.cfc_loops import Kind
from potluck.models.cfc_scan import cfc_scan
from potluck.models.cfc_steps import CEILING, STEEPNESS, act, first_rates, is_plain, is_scanned, run
from potluck.models.model import Model
from potluck.models.recurrent import last_valid
from potluck.models.settings import Count, Counts

HEADS = ("f", "g", "h")
SLOPES = {"lecun_tanh": CEILING * STEEPNESS, "silu": 0.5}  # at 0
SHARE = 0.5  # of the state in the backbone's arguments at first: small enough for its tanh to be nearly straight


def _three(layers: tuple[int, ...]) -> tuple[int, ...]:
    if len(layers) != 3 or max(layers) > 2:
        raise ValueError("three numbers are allowed, the layers of f, g and h, each 1 or 2")
    return layers


Interval = Annotated[float, Field(gt=0)]
Layers = Annotated[Counts, AfterValidator(_three)]


def as_series(shape: Sequence[int]) -> tuple[int, int]:
    """Return samples as (time, channels); any other number of axes is read value by value, like sequential MNIST."""
    return (shape[0], shape[1]) if len(shape) == 2 else (prod(shape), 1)


def spans(t: Tensor | None, interval: float) -> Tensor | None:
    """Return the time since the previous sample, in nominal intervals; 1 for the first."""
    if t is None:
        return None
    since = (t[..., 1:] - t[..., :-1]) / interval
    return torch.cat((torch.ones_like(t[..., :1]), since), -1)


class Cfc(nn.Module):
    kind = "recurrent"

    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        *,
        hidden: Count = 32,
        backbone: Count = 48,
        head: Count = 32,
        layers: Layers = (2, 2, 2),
        gate: Literal["no_gate", "gated", "leaky"] = "no_gate",
        time_bias: bool = False,
        mixed: bool = False,
        activation: Literal["lecun_tanh", "silu"] = "lecun_tanh",
        init: Literal["memory", "xavier"] = "memory",
        interval: Interval = 1.0,
    ) -> None:
        if time_bias and gate == "leaky":
            raise BadInput(
                Code.SETTINGS_CLASH,
                'model.time_bias: must be false with gate = "leaky", got true: a leaky cell would depend on the rate.',
            )
        super().__init__()
        self.settings = {
            "layers": layers, "gate": gate, "time_bias": time_bias, "mixed": mixed, "activation": activation,
            "interval": interval,
        }  # fmt: skip
        channels = as_series(shape)[1]
        self.backbone = nn.Linear(channels + hidden, backbone)
        for name, depth in zip(HEADS, layers, strict=True):
            sizes = (backbone, *(head,) * (depth - 1), hidden)
            self.add_module(
                name, nn.ModuleDict({str(i): nn.Linear(sizes[i - 1], sizes[i]) for i in range(1, depth + 1)})
            )
        if time_bias:
            self.time = nn.Linear(backbone, hidden)
        if mixed:
            self.lstm = nn.Linear(channels + hidden, 4 * hidden)
        self.fc = nn.Linear(hidden, classes)
        self.names = [name for name, _ in self.named_parameters()]
        for name in self.names:  # Xavier for a unit's inputs, zero for its bias
            value = self.get_parameter(name)
            nn.init.xavier_uniform_(value) if value.dim() == 2 else nn.init.zeros_(value)
        if init == "memory":
            drawn = {name: self.get_parameter(name).detach() for name in self.names}
            q, o = (nn.init.orthogonal_(torch.empty(size)) for size in memory_shapes(drawn))
            for name, new in remembering(drawn, self.settings, q, o).items():
                self.get_parameter(name).data.copy_(new)

    def scanned(self) -> str | None:
        """SiLU's slope is not a function of its output, so kernels do not know it."""
        return "cfc" if is_scanned(self.settings) else None

    def forward(self, x: Tensor, t: Tensor | None = None, length: Tensor | None = None) -> Tensor:
        weights = {
            name: getattr(self.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]) for name in self.names
        }
        return read_out(weights, unroll(weights, self.settings, x, t), length)


def in_head(name: str, head: str) -> bool:
    """Whether a weight belongs to f, g or h."""
    return name.startswith(f"{head}.")


def last_layer(names: Sequence[str], head: str) -> str:
    """The name of the weight matrix of a head's last layer: V, for f."""
    return max(name for name in names if in_head(name, head) and name.endswith(".weight"))


def memory_shapes(weights: Params) -> tuple[tuple[int, int], tuple[int, int]]:
    """Of the two orthogonal matrices that `remembering` needs: (H, N) and (J, N)."""
    hidden = weights["fc.weight"].shape[1]
    return (weights["backbone.weight"].shape[0], hidden), (weights["h.1.weight"].shape[0], hidden)


def remembering(weights: Params, settings: Mapping[str, Any], q: Tensor, o: Tensor) -> Params:
    """Return weights with h(z(x)) = x to first order, so that small states persist; a leaky cell's rates do that.

    An LSTM beside keeps what it has, and b of `time_bias` is 0.
    """
    hidden, slope = q.shape[1], SLOPES[settings["activation"]]
    weights = dict(weights)
    if settings.get("time_bias"):
        weights["time.weight"] = torch.zeros_like(weights["time.weight"])
    if settings.get("mixed"):
        keep = torch.arange(4 * hidden) // hidden == 1
        weights["lstm.bias"] = torch.where(keep, 1.0, weights["lstm.bias"])
    if settings["gate"] == "leaky":
        return {**weights, last_layer(list(weights), "f").replace("weight", "bias"): first_rates(hidden)}
    whole = weights["backbone.weight"]
    channels = whole.shape[1] - hidden
    back = (2.0 if settings["gate"] == "gated" else 1.0) / (SHARE * slope)  # 1 - s is 1/2 at first
    changed = {"backbone.weight": torch.cat((whole[:, :channels], SHARE * q), 1)}
    if has_hidden(weights, "h"):
        changed |= {"h.1.weight": o @ q.T, "h.2.weight": back / slope * o.T}
    else:
        changed[last_layer(list(weights), "h")] = back * q.T
    return {**weights, **changed}


def read_out(weights: Params, states: Tensor, length: Tensor | None) -> Tensor:
    return F.linear(last_valid(states, length), weights["fc.weight"], weights["fc.bias"])


def unroll(weights: Params, settings: Mapping[str, Any], x: Tensor, t: Tensor | None = None) -> Tensor:
    """Return the state after every step (B, T, N) of samples (B, ...)."""
    return states_and_read(weights, settings, x, t)[0]


def states_and_read(
    weights: Params, settings: Mapping[str, Any], x: Tensor, t: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The state after every step, and what the backbone reads as the state before it: with `mixed` not the same."""
    x = x if x.dim() == 3 else x.flatten(1).unsqueeze(-1)
    tau = spans(t, settings["interval"])  # differences at the clock's precision, then at the network's
    tau = None if tau is None else tau.to(x.dtype)
    u, S = _driven(weights, x)
    A, a, D, d = joined_heads(weights)
    if settings["activation"] == "silu" or not is_plain(settings):
        return run(weights, settings, x, (u, S), (A, a, D, d), tau)
    # Factors of the activations go into the weights, because the scan computes only tanh:
    # 1.7159 tanh(0.666 a), and σ(a) = (1 + tanh(a / 2)) / 2.
    N = S.shape[-1]
    half = torch.cat((D.new_full((N, 1), -0.5), D.new_ones((2 * N, 1))))
    states = cfc_scan(
        Kind(settings["gate"] == "gated", tau is not None),
        STEEPNESS * u,
        u.new_zeros(u.shape[:2]) if tau is None else tau,
        STEEPNESS * S,
        STEEPNESS * CEILING * A,
        STEEPNESS * a,
        D * (CEILING * half),
        d * half.squeeze(1),
    )
    return states, torch.cat((torch.zeros_like(states[:, :1]), states[:, :-1]), 1)


def has_hidden(weights: Params, head: str) -> bool:
    """Whether a head has two layers; a first layer without units does not count (`methods/parts/fedcfc/depths.py`)."""
    return f"{head}.2.weight" in weights and weights[f"{head}.1.weight"].shape[0] > 0


def f_outputs(weights: Params, settings: Mapping[str, Any], x: Tensor, read: Tensor) -> list[Tensor]:
    """Return the output of each of f's layers at every step, (B, T, units), from the states that the backbone read."""
    x = x if x.dim() == 3 else x.flatten(1).unsqueeze(-1)
    u, S = _driven(weights, x)
    silu = settings["activation"] == "silu"
    out = [act(u + read @ S.T, silu)]
    names = sorted(name for name in weights if in_head(name, "f") and name.endswith(".weight"))
    for name in names[0 if has_hidden(weights, "f") else -1 :]:
        y = F.linear(out[-1], weights[name], weights[name.replace("weight", "bias")])
        out.append(y if name == names[-1] else act(y, silu))
    return out[1:]


def _driven(weights: Params, x: Tensor) -> tuple[Tensor, Tensor]:
    """The backbone's argument without the state's part (B, T, H), and the weights of that part (H, N)."""
    whole = weights["backbone.weight"]
    channels = x.shape[-1]
    return F.linear(x, whole[:, :channels], weights["backbone.bias"]), whole[:, channels:]


def joined_heads(weights: Params) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Join the heads: first layers A, a of those that have two, and last layers D, d that read [first; backbone]."""
    backbone = weights["backbone.bias"].shape[0]
    two = [head for head in HEADS if f"{head}.2.weight" in weights]  # without units if the first layer is left out
    first = [weights[f"{head}.1.weight"] for head in two]
    width = sum(layer.shape[0] for layer in first)
    direct = not all(has_hidden(weights, head) for head in HEADS)
    rows, at = [], 0
    for head in HEADS:
        last = weights[last_layer(list(weights), head)]
        left = width
        if has_hidden(weights, head):
            left, at = at, at + last.shape[1]
        right = width + backbone * direct - left - last.shape[1]
        rows.append(F.pad(last, (left, right)))
    nothing = weights["backbone.weight"].new_zeros((0, backbone))
    A = torch.cat([nothing, *first])
    a = torch.cat([nothing[:, 0], *(weights[f"{head}.1.bias"] for head in two)])
    d = torch.cat([weights[last_layer(list(weights), head).replace("weight", "bias")] for head in HEADS])
    return A, a, torch.cat(rows), d


def logits_and_activity(
    model: Model, weights: Params, x: Tensor, *, weight: Tensor, t: Tensor | None = None, length: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Logits, and Υ of FedCFC section 4.3: the least active of f's layers, by its most active unit.

    A unit's output is the mean over the samples that count and their valid steps.
    """
    states, read = states_and_read(weights, model.settings, x, t)
    valid = weight[:, None].expand(states.shape[:2])
    if length is not None:
        valid = valid * (torch.arange(states.shape[1]) < length[:, None])
    share = valid / valid.sum().clamp_min(1.0)
    tops = [(out * share.unsqueeze(-1)).sum((0, 1)).amax() for out in f_outputs(weights, model.settings, x, read)]
    return read_out(weights, states, length), torch.stack(tops).amin()


class Ltc(nn.Module):
    """Liquid time-constant network: dx/dt = -ω x + φ(x, i) (a - x), by the fused (semi-implicit) solver.

    A step of length dt is x <- (x + dt φ a) / (1 + dt (ω + φ)), `unfold` of them per sample; φ is a logistic layer.
    """

    kind = "recurrent"

    def __init__(
        self, shape: Sequence[int], classes: int, *, hidden: Count = 32, unfold: Count = 6, interval: Interval = 1.0
    ) -> None:
        super().__init__()
        self.unfold, self.interval = unfold, interval
        self.inputs = nn.Linear(as_series(shape)[1], hidden)
        self.state = nn.Linear(hidden, hidden, bias=False)
        self.rate = nn.Parameter(torch.zeros(hidden))  # ω = softplus(rate): stays positive
        self.target = nn.Parameter(torch.empty(hidden).uniform_(-1.0, 1.0))  # a
        self.fc = nn.Linear(hidden, classes)

    def forward(self, x: Tensor, t: Tensor | None = None, length: Tensor | None = None) -> Tensor:
        x = x if x.dim() == 3 else x.flatten(1).unsqueeze(-1)
        drive, rate, tau = self.inputs(x), F.softplus(self.rate), spans(t, self.interval)
        state, states = x.new_zeros((x.shape[0], rate.shape[0])), []
        for step in range(x.shape[1]):
            dt = 1.0 / self.unfold if tau is None else tau[:, step, None] / self.unfold
            for _ in range(self.unfold):
                phi = torch.sigmoid(drive[:, step] + self.state(state))
                state = (state + dt * phi * self.target) / (1 + dt * (rate + phi))
            states.append(state)
        out: Tensor = self.fc(last_valid(torch.stack(states, 1), length))
        return out
