"""Hermes: each client prunes the channels it needs least, and only what sub-models have in common is averaged.

Li et al., "Hermes: An Efficient Federated Learning Framework for Heterogeneous Mobile Clients", MobiCom 2021: channel
pruning by a group lasso in local training, then averages over the clients that hold a weight; a weight that one client
alone holds stays that client's. Deviation: a client prunes once, to the width it was dealt, instead of step by step to
a validation accuracy, so that it is compared at the same cost as the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from potluck.fleet import ClientId, Data, Done, Fleet, Local, Params
from potluck.learn import adam, mean_loss
from potluck.methods.parts import checks
from potluck.methods.parts.pruning import Found, Search, State, advanced, found, lengths
from potluck.methods.parts.submodel import Mine, Train, Trained, check_widths, train
from potluck.methods.parts.widths import channel_squares, dealt, plan_of

__all__ = [
    "PROGRAMS", "Config", "Found", "Mine", "Search", "State", "Train", "Trained",
    "personal", "server", "shared", "start",
]  # fmt: skip


@dataclass(frozen=True)
class Config:
    widths: tuple[float, ...] = (1.0, 0.75, 0.5, 0.25)
    shares: tuple[float, ...] = (4.0, 8.0, 4.0, 4.0)  # of the clients, dealt by the seed
    penalty: float = 1e-3  # of the group lasso
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

    def loss(weights: Params, batch: Data, key: Tensor) -> tuple[Tensor, Params]:
        value, buffers = mean_loss(local.model, weights, batch, key)
        return value + task.penalty * lengths(channel_squares(weights, plan)) if plan.groups else value, buffers

    weights = adam(
        local.model, task.weights, local.data, loss=loss,
        key=local.key, lr=task.lr, epochs=task.epochs, batch=task.batch,
    )  # fmt: skip
    return found(weights, channel_squares(weights, plan), plan, task.ratio, local)


PROGRAMS = {Search: search, Train: train}


def shared(state: State) -> Params:
    return state.weights


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    return mine.weights or state.weights
