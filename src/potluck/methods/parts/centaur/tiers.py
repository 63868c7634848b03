"""FedAvg, FedProx or SCAFFOLD for either tier of a method with two: what is added to a local step, and what the server
keeps.

Li et al., MLSys 2020 (proximal term); Karimireddy et al., ICML 2020, Algorithm 1 with option II (control variates).
Control variates assume plain gradient steps, so a tier that uses them trains without momentum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch

from potluck.fleet import Params
from potluck.learn import Pull, Recipe
from potluck.methods.parts.centaur.partial import Fitted
from potluck.tensors import mean, zeros_like

MERGES = ("fedavg", "fedprox", "scaffold")


@dataclass(frozen=True)
class Controls:
    """SCAFFOLD's c of each tier; empty where a tier does without."""

    device: Params = field(default_factory=dict)
    ap: Params = field(default_factory=dict)


def begin(weights: Params, device: str, ap: str) -> Controls:
    nothing: Params = {}
    return Controls(
        zeros_like(weights) if device == "scaffold" else nothing, zeros_like(weights) if ap == "scaffold" else nothing
    )


def recipe(recipe: Recipe, merge: str) -> Recipe:
    """A tier's recipe: control variates assume plain gradient steps."""
    return replace(recipe, momentum=0.0) if merge == "scaffold" else recipe


def zeros(control: Params) -> Params:
    return zeros_like(control) if control else {}


def pull(mu: float, received: Params, control: Params, own: Params) -> Pull | None:
    """mu (w - w_received) of FedProx, or c - c_i of SCAFFOLD."""
    if mu:
        return Pull(mu, {name: -mu * value for name, value in received.items()})
    if control:
        return Pull(0.0, {name: control[name] - own[name] for name in control})
    return None


def variate(
    moving: Sequence[str], received: Params, fitted: Fitted, control: Params, own: Params, lr: float
) -> tuple[Params, Params]:
    """SCAFFOLD's new c_i by option II, and its change; empty without control variates. Buffers have none."""
    if not control:
        return {}, {}
    span = fitted.steps.clamp_min(1.0) * lr
    new = own | {
        name: torch.where(
            fitted.steps > 0, own[name] - control[name] + (received[name] - fitted.weights[name]) / span, own[name]
        )
        for name in moving
    }
    return new, {name: new[name] - own[name] for name in new}


def moved(controls: Controls, tier: Literal["device", "ap"], changes: Sequence[Params], clients: int) -> Controls:
    """c moves by |S|/N of the mean change."""
    if not changes or not changes[0]:
        return controls
    step, share = mean(changes), len(changes) / clients
    before: Params = getattr(controls, tier)
    return replace(controls, **{tier: before | {name: before[name] + share * step[name] for name in step}})
