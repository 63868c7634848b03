"""TailorFL: each client keeps the filters whose importance it learned to be largest.

Deng et al., "TailorFL: Dual-Personalized Federated Learning under System and Data Heterogeneity", SenSys 2022, as
FedConv (MobiSys 2024, section 5.3) compares with it: filter-level pruning by a learned importance of every filter,
here a gate that multiplies the filter's weights and is trained with them under an L1 penalty. Deviations: a client
prunes once, to the width it was dealt; weights are averaged over their holders by examples, without the paper's
scaling. The rounds are those of `submodels/pruning.py`; what makes it TailorFL is how a client scores its filters.
"""

from __future__ import annotations

import torch
from torch import Tensor

from potluck.fleet import Data, Done, Local, Params
from potluck.learn import Recipe, fit, mean_loss
from potluck.methods.parts.submodels.pruning import (
    Config,
    Found,
    Search,
    State,
    check,
    found,
    gated,
    personal,
    private,
    record,
    server,
    shared,
    start,
)
from potluck.methods.parts.submodels.train import Mine, Train, Trained, train
from potluck.methods.parts.submodels.widths import plan_of

__all__ = [
    "PROGRAMS", "Config", "Found", "Mine", "Recipe", "Search", "State", "Train", "Trained",
    "check", "personal", "private", "record", "server", "shared", "start",
]  # fmt: skip


def search(task: Search, local: Local) -> Done:
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
    scores = {group: gate.abs() for group, gate in gates.items()}
    return found(gated(weights, plan, gates), scores, plan, task.ratio, local)


PROGRAMS = {Search: search, Train: train}
