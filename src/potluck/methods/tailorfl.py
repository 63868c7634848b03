"""TailorFL: each client keeps the filters whose importance it learned to be largest.

Deng et al., "TailorFL: Dual-Personalized Federated Learning under System and Data Heterogeneity", SenSys 2022, as
FedConv (MobiSys 2024, section 5.3) compares with it: filter-level pruning by a learned importance of every filter. Here
that is a gate that multiplies the filter's weights and is trained with them under an L1 penalty. Deviations: a client
prunes once, to the width it was dealt; weights are averaged over their holders by samples, without the paper's scaling.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.fleet import Data, Done, Fleet, Local, Params
from potluck.learn import Recipe, fit, mean_loss
from potluck.methods.hermes import State, shared, start
from potluck.methods.parts import checks
from potluck.methods.parts.cohort import sample
from potluck.methods.parts.submodels.figures import record
from potluck.methods.parts.submodels.fitting import FITTED, Slices
from potluck.methods.parts.submodels.pruning import Found, Search, found, held, received, searched
from potluck.methods.parts.submodels.train import Mine, Train, Trained, personal, private, train
from potluck.methods.parts.submodels.widths import Plan, check, cut, merged, plan_of
from potluck.spaces import Range, Space

__all__ = [
    "Found", "Mine", "Recipe", "State", "Trained", "check", "personal", "private", "received", "record", "shared",
    "start",
]  # fmt: skip
KEY_SETTINGS = ("sizes.widths", "sizes.shares", "recipe.lr", "penalty")
NEEDS = FITTED


@dataclass(frozen=True)
class Config(Slices):  # sizes, recipe, cohort, seed
    penalty: float = 1e-3  # L1, on the gates

    def __post_init__(self) -> None:
        checks.at_least(self, "penalty", 0.0)
        super().__post_init__()


SPACE: Space = {"recipe.lr": Range(1e-4, 1e-2, log=True), "penalty": Range(1e-5, 1e-2, log=True)}


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    plan = plan_of(fleet.home.model)
    width_of = cfg.sizes.fitted(fleet, state.weights, cfg.recipe, cfg.seed)
    while True:
        # A client tailors the whole model once; afterwards it trains its own filters.
        tailor = {width: Search(state.weights, width, cfg.penalty, cfg.recipe) for width in cfg.sizes.widths}
        chosen = sample(fleet, cfg.cohort, cfg.seed, state.round)
        own = {c: Train(cut(state.weights, plan, state.kept[c]), cfg.recipe) for c in chosen if c in state.kept}
        arrivals = fleet.gather({client: own.get(client, tailor[width_of[client]]) for client in chosen})
        kept = state.kept | searched(arrivals, plan)
        known = state.known | {arrival.client: width_of[arrival.client] for arrival in arrivals}
        state = State(merged(state.weights, plan, held(arrivals, kept)), state.round + 1, kept, known, plan)
        yield state


def search(task: Search, local: Local) -> Done:
    """Train weights and gates together, then keep the filters with the largest gates."""
    plan = plan_of(local.model)
    names = {group: f"gate/{group}" for group in plan.groups}

    def parted(free: Params) -> tuple[Params, dict[str, Tensor]]:
        gates = {group: free[name] for group, name in names.items()}
        return {name: value for name, value in free.items() if name not in names.values()}, gates

    def loss(free: Params, batch: Data, key: Tensor) -> tuple[Tensor, Params]:
        weights, gates = parted(free)
        value, buffers = mean_loss(local.model, gated(weights, plan, gates), batch, key)
        for gate in gates.values():
            value = value + task.penalty * gate.abs().sum()
        return value, buffers

    free = task.weights | {name: torch.ones(plan.groups[group]) for group, name in names.items()}
    moving = local.model.trainable | frozenset(names.values())
    free = fit(local.model, free, local.data, task.recipe, key=local.key, only=moving, loss=loss)
    weights, gates = parted(free)
    importance = {group: gate.abs() for group, gate in gates.items()}
    return found(gated(weights, plan, gates), importance, plan, task.ratio, local)


def gated(weights: Params, plan: Plan, gates: Mapping[str, Tensor]) -> Params:
    """Each filter's weights times its gate; the statistics of norms have none."""
    out = {}
    for name, value in weights.items():
        group = plan.axes[name][0].group
        if group is None or name.endswith(("running_mean", "running_var")):
            out[name] = value
        else:
            out[name] = value * gates[group].reshape(-1, *(1,) * (value.dim() - 1))
    return out


RELEASES = "each client prunes channels of its own"
PROGRAMS = {Search: search, Train: train}
HEADLINE = "own"
