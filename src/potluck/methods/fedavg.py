"""FedAvg: average what the clients learned, weighted by how much data they hold.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017, Algorithm 1.
Deviation: none. `momentum` (0 in the paper) is the client's own optimiser, restarted at every task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from potluck.fleet import ClientId, Done, Fleet, Local, Params
from potluck.learn import sgd
from potluck.methods.parts import checks
from potluck.methods.parts.merge import averaged


@dataclass(frozen=True)
class Config:
    cohort: int = 0  # clients asked per round (C·K in the paper); 0 asks everybody
    epochs: int = 2  # E
    batch: int = 32  # B
    lr: float = 0.05  # eta
    momentum: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        checks.local_training(self)


@dataclass(frozen=True)
class State:
    weights: Params
    round: int = 0


@dataclass(frozen=True)
class Train:
    """Server to client."""

    weights: Params
    epochs: int
    batch: int
    lr: float
    momentum: float


@dataclass(frozen=True)
class Trained:
    """Client to server."""

    weights: Params
    examples: Tensor


def start(weights: Params, cfg: Config) -> State:
    return State(weights)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        task = Train(state.weights, cfg.epochs, cfg.batch, cfg.lr, cfg.momentum)
        weights = averaged(fleet, task, state.weights, cfg.cohort, cfg.seed, state.round)
        state = State(weights, state.round + 1)
        yield state


def train(task: Train, local: Local) -> Done:
    weights = sgd(
        local.model, task.weights, local.data,
        key=local.key, lr=task.lr, epochs=task.epochs, batch=task.batch, momentum=task.momentum,
    )  # fmt: skip
    return Done(Trained(weights, local.data.weight.sum()))


PROGRAMS = {Train: train}


def shared(state: State) -> Params:
    return state.weights


def personal(state: State, client: ClientId, mine: None) -> Params:
    return state.weights
