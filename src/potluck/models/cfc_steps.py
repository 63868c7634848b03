"""A closed-form continuous-time cell step by step, in ordinary operations: what the compiled scan does not know.

These are SiLU, whose slope is not a function of its output, and three remedies for long or irregular series:

* `time_bias`: s = σ(-f(z) tau + b(z)) with one more linear layer b, as in the reference code of the CFC.
* `mixed`: an LSTM cell beside the CFC (its `mixed_memory`). At each step it reads the input and the last state; the
  backbone reads its output.
* the gate `leaky`: x' = s ⊙ x + (1 - s) ⊙ y with s = exp(-softplus(f(z)) tau) and y = (1 + g(z)) / 2 ⊙ h(z). The old
  state is a term of the new one, so it persists. Two steps of half the time do what one step does, as long as z stays
  the same: the cell does not depend on the sampling rate as g and h of the printed form do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from potluck.fleet import Params

CEILING, STEEPNESS = 1.7159, 0.666  # the scaled tanh of LeCun et al., 1998
FASTEST, SLOWEST = 1.0, 1.0 / 64.0  # rates that the units of a leaky cell start with, in 1 / interval


def act(a: Tensor, silu: bool) -> Tensor:
    return F.silu(a) if silu else CEILING * torch.tanh(STEEPNESS * a)


def first_rates(hidden: int) -> Tensor:
    """The bias of f's last layer with which the units of a leaky cell forget at rates from fast to slow."""
    rates = torch.logspace(0.0, 1.0, hidden, base=SLOWEST / FASTEST) * FASTEST
    return rates.expm1().log()


def is_plain(settings: Mapping[str, Any]) -> bool:
    """Whether a CFC has the printed form, which the scan, boards and exported C know; SiLU apart."""
    return settings["gate"] != "leaky" and not settings.get("time_bias") and not settings.get("mixed")


def is_scanned(settings: Mapping[str, Any]) -> bool:
    """Whether compiled kernels can train it: the printed form or the leaky cell, with tanh."""
    extra = settings.get("time_bias") or settings.get("mixed")
    return not extra and settings["activation"] == "lecun_tanh"


def run(
    weights: Params,
    settings: Mapping[str, Any],
    x: Tensor,
    driven: tuple[Tensor, Tensor],
    heads: tuple[Tensor, Tensor, Tensor, Tensor],
    tau: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The state after every step, and what the backbone reads as the state before it, both (B, T, N)."""
    u, S = driven
    A, a, D, d = heads
    silu, gate, mixed = settings["activation"] == "silu", settings["gate"], bool(settings.get("mixed"))
    state = cell = u.new_zeros((u.shape[0], S.shape[1]))
    gates = F.linear(x, weights["lstm.weight"][:, : x.shape[-1]], weights["lstm.bias"]) if mixed else u
    back = weights["lstm.weight"][:, x.shape[-1] :].T if mixed else S
    states, read = [], []
    for t in range(u.shape[1]):
        if mixed:
            i, keep, new, out = (gates[:, t] + state @ back).chunk(4, 1)
            cell = torch.sigmoid(keep) * cell + torch.sigmoid(i) * torch.tanh(new)
            state = torch.sigmoid(out) * torch.tanh(cell)
        read.append(state)
        z = act(u[:, t] + state @ S.T, silu)
        q = act(F.linear(z, A, a), silu)
        f, g, h = F.linear(q if D.shape[1] == A.shape[0] else torch.cat((q, z), 1), D, d).chunk(3, 1)
        span = 1.0 if tau is None else tau[:, t, None]
        if gate == "leaky":
            s = torch.exp(-F.softplus(f) * span)
            state = s * state + (1 - s) * (0.5 + 0.5 * torch.tanh(g)) * torch.tanh(h)
        else:
            bias = F.linear(z, weights["time.weight"], weights["time.bias"]) if settings.get("time_bias") else 0.0
            s = torch.sigmoid(bias - f * span)
            state = s * torch.tanh(g) + ((1 - s) * torch.tanh(h) if gate == "gated" else torch.tanh(h))
        states.append(state)
    return torch.stack(states, 1), torch.stack(read, 1)
