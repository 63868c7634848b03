"""Centaur aggregates in two tiers, devices and access points: FedAvg, FedProx or SCAFFOLD in either of them.

The terms themselves are in `parts/correction.py`. Control variates assume plain gradient steps, so a tier that uses
SCAFFOLD trains without momentum.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from potluck.errors import BadInput, Code
from potluck.fleet import Params
from potluck.learn import Pull, Recipe
from potluck.methods.parts import checks, correction
from potluck.methods.parts.centaur.partial import Fitted
from potluck.tensors import zeros_like

Tier = Literal["device", "ap"]


@dataclass(frozen=True)
class Merge:
    """How the models of each tier are aggregated."""

    device: Literal["fedavg", "fedprox", "scaffold"] = "fedavg"  # the devices' classifiers
    ap: Literal["fedavg", "fedprox", "scaffold"] = "fedavg"  # the access points' models
    mu: float = 0.01  # weight of FedProx's term, where a tier uses it

    def __post_init__(self) -> None:
        checks.at_least(self, "mu", 0.0)

    def only(self, tier: Tier) -> None:
        """Raise BadInput where the tier that does not train is to be aggregated in another way than by default."""
        idle: Tier = "ap" if tier == "device" else "device"
        if getattr(self, idle) != "fedavg":
            raise BadInput(Code.SETTING_VALUE, f"merge.{idle}: must stay fedavg, got {getattr(self, idle)}.")

    def local(self, tier: Tier, recipe: Recipe, controls: Controls, names: Collection[str]) -> tuple[Recipe, Term]:
        """How clients of a tier train these weights: the recipe, and the term that its aggregation adds."""
        rule = getattr(self, tier)
        control = {name: value for name, value in getattr(controls, tier).items() if name in names}
        plain = replace(recipe, momentum=0.0) if rule == "scaffold" else recipe
        return plain, Term(self.mu if rule == "fedprox" else 0.0, control)


@dataclass(frozen=True)
class Term:
    """What aggregation adds to local training: FedProx's mu, or SCAFFOLD's c; neither for FedAvg."""

    mu: float
    control: Params

    def pull(self, received: Params, own: Params) -> Pull | None:
        return correction.pull_of(self.mu, received, self.control, own)

    def new_own(self, received: Params, own: Params, fitted: Fitted, lr: float) -> Params:
        """The client's c_i after training; nothing without SCAFFOLD."""
        names = fitted.moving if self.control else ()
        return correction.new_own(own, self.control, received, fitted.weights, fitted.steps, lr, names)


@dataclass(frozen=True)
class Controls:
    """SCAFFOLD's c of each tier; empty where a tier does not use it."""

    device: Params = field(default_factory=dict)
    ap: Params = field(default_factory=dict)


def begin(weights: Params, merge: Merge) -> Controls:
    used = {tier: zeros_like(weights) for tier in ("device", "ap") if getattr(merge, tier) == "scaffold"}
    return Controls(**used)


def moved(controls: Controls, tier: Tier, changes: Sequence[Params], clients: int) -> Controls:
    """The variates after a round of one tier: c moves by |S|/N of the mean change."""
    return replace(controls, **{tier: correction.moved(getattr(controls, tier), changes, clients)})
