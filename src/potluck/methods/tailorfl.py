"""TailorFL: each client keeps the filters whose importance it learned to be largest.

Deng et al., "TailorFL: Dual-Personalized Federated Learning under System and Data Heterogeneity", SenSys 2022, as
FedConv (MobiSys 2024, section 5.3) compares with it: filter-level pruning by a learned importance of every filter. That
is a gate here: it multiplies the filter's weights and is trained with them under an L1 penalty. A client prunes step by
step to the width it was dealt (`steps`). Aggregation scales parameters with the pruning rate (`scaled`): a filter that
reads a share of its inputs is sent with weights divided by that share, and comes back multiplied by it. We know the
paper by its abstract and by FedConv's comparison: the form of the scaling and the steps are our reading, and its tuning
of sub-models by the server is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from potluck.fleet import ClientId, Data, Done, Fleet, Local, Params
from potluck.learn import Recipe, fit, mean_loss
from potluck.methods.hermes import State, shared, start
from potluck.methods.parts import checks
from potluck.methods.parts.cohort import sample
from potluck.methods.parts.submodels.figures import record
from potluck.methods.parts.submodels.fitting import FITTED, Slices
from potluck.methods.parts.submodels.pruning import (
    Found,
    Search,
    Steps,
    counts_of,
    found,
    held,
    rights,
    searched,
    task_for,
)
from potluck.methods.parts.submodels.pruning import received as held_of
from potluck.methods.parts.submodels.train import Mine, Train, Trained, personal, private, train
from potluck.methods.parts.submodels.widths import Indices, Plan, check, merged, plan_of
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
    steps: Steps = Steps()
    scaled: bool = True  # scale parameters with the pruning rate

    def __post_init__(self) -> None:
        checks.at_least(self, "penalty", 0.0)
        super().__post_init__()


SPACE: Space = {"recipe.lr": Range(1e-4, 1e-2, log=True), "penalty": Range(1e-5, 1e-2, log=True)}


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    plan = plan_of(fleet.home.model)
    width_of = cfg.sizes.fitted(fleet, state.weights, cfg.recipe, cfg.seed)
    while True:
        down, up = (partial(scaled, plan=plan, power=power if cfg.scaled else 0.0) for power in (-1.0, 1.0))
        tasks = {
            client: task_for(state, client, plan, width_of[client], cfg.steps, cfg.penalty, cfg.recipe, down)
            for client in sample(fleet, cfg.cohort, cfg.seed, state.round)
        }
        arrivals = fleet.gather(tasks)
        kept = state.kept | searched(arrivals, plan, state.kept)
        known = state.known | {arrival.client: width_of[arrival.client] for arrival in arrivals}
        parts = [(up(sub, channels), channels, n) for sub, channels, n in held(arrivals, kept)]
        state = State(
            merged(state.weights, plan, parts),
            state.round + 1,
            kept,
            known,
            state.right | rights(arrivals),
            plan,
            cfg.scaled,
        )
        yield state


def scaled(weights: Params, channels: Indices, *, plan: Plan, power: float) -> Params:
    """Weights of layers that read a share of their inputs, times that share to a power."""
    out = dict(weights)
    for name, value in weights.items():
        axes = plan.axes[name]
        if power and len(axes) > 1 and axes[1].group is not None:
            out[name] = value * (len(channels[axes[1].group]) / axes[1].channels) ** power
    return out


def received(state: State, client: ClientId) -> Params:
    sub = held_of(state, client)
    if state.plan is None or not state.scaled or client not in state.kept:
        return sub
    return scaled(sub, state.kept[client], plan=state.plan, power=-1.0)


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

    has = counts_of(task.weights, plan)
    free = task.weights | {name: torch.ones(has[group]) for group, name in names.items()}
    moving = local.model.trainable | frozenset(names.values())
    free = fit(local.model, free, local.data, task.recipe, key=local.key, only=moving, loss=loss)
    weights, gates = parted(free)
    importance = {group: gate.abs() for group, gate in gates.items()}
    return found(gated(weights, plan, gates), importance, plan, task, local)


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
