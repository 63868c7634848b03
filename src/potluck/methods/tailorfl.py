"""TailorFL: each client keeps the filters whose importance it learned to be largest.

Deng et al., "TailorFL: Dual-Personalized Federated Learning under System and Data Heterogeneity", SenSys 2022, as
FedConv (MobiSys 2024, section 5.3) compares with it: filter-level pruning by a learned importance of every filter,
here a gate that multiplies the filter's weights and is trained with them under an L1 penalty. Deviations: a client
prunes once, to the width it was dealt; weights are averaged over their holders by examples, without the paper's
scaling.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.fleet import ClientId, Data, Done, Fleet, Local, Params
from potluck.learn import adam, mean_loss
from potluck.methods.parts import checks
from potluck.methods.parts.pruning import Found, Search, State, advanced, found, gated
from potluck.methods.parts.submodel import Mine, Train, Trained, check_widths, train
from potluck.methods.parts.widths import dealt, plan_of

__all__ = [
    "PROGRAMS", "Config", "Found", "Mine", "Search", "State", "Train", "Trained",
    "personal", "server", "shared", "start",
]  # fmt: skip


@dataclass(frozen=True)
class Config:
    widths: tuple[float, ...] = (1.0, 0.75, 0.5, 0.25)
    shares: tuple[float, ...] = (4.0, 8.0, 4.0, 4.0)  # of the clients, dealt by the seed
    penalty: float = 1e-3  # on the gates
    cohort: int = 0
    epochs: int = 5
    batch: int = 32
    lr: float = 1e-3  # Adam
    seed: int = 0

    def __post_init__(self) -> None:
        checks.local_training(self)
        check_widths(self.widths, self.shares)
        checks.at_least(self, "penalty", 0.0)


def start(weights: Params, cfg: Config) -> State:
    return State(weights)


def private(weights: Params, cfg: Config) -> Mine:
    return Mine({})


def check(cfg: Config, home: Local) -> None:
    plan_of(home.model)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    width_of = dealt(fleet.clients, cfg.widths, cfg.shares, cfg.seed)
    while True:
        state = advanced(fleet, state, cfg, width_of)
        yield state


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
    free = adam(
        local.model, free, local.data, loss=loss, only=local.model.trainable | frozenset(names.values()),
        key=local.key, lr=task.lr, epochs=task.epochs, batch=task.batch,
    )  # fmt: skip
    weights, gates = parted(free)
    scores = {group: gate.abs() for group, gate in gates.items()}
    return found(gated(weights, plan, gates), scores, plan, task.ratio, local)


PROGRAMS = {Search: search, Train: train}


def shared(state: State) -> Params:
    return state.weights


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    return mine.weights or state.weights
