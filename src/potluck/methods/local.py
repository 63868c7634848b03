"""Local: everybody learns alone; the line that every way of learning together must beat.

No weights are sent in either direction, only the word to train on and the sign that it was done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from potluck.fleet import ClientId, Done, Fleet, Local, Params
from potluck.learn import sgd
from potluck.methods.parts import checks
from potluck.methods.parts.cohort import sample


@dataclass(frozen=True)
class Config:
    cohort: int = 0  # clients that train per round; 0 for everybody
    epochs: int = 2
    batch: int = 32
    lr: float = 0.05
    momentum: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        checks.local_training(self)


@dataclass(frozen=True)
class State:
    round: int = 0


@dataclass(frozen=True)
class Mine:
    weights: Params  # never leaves the client


@dataclass(frozen=True)
class Train:
    epochs: int
    batch: int
    lr: float
    momentum: float


@dataclass(frozen=True)
class Trained:
    examples: Tensor


def start(weights: Params, cfg: Config) -> State:
    return State()


def private(weights: Params, cfg: Config) -> Mine:
    return Mine(weights)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        task = Train(cfg.epochs, cfg.batch, cfg.lr, cfg.momentum)
        chosen = sample(fleet, cfg.cohort, cfg.seed, state.round)
        fleet.gather({client: task for client in chosen})
        state = State(state.round + 1)
        yield state


def train(task: Train, local: Local) -> Done:
    mine: Mine = local.mine
    weights = sgd(
        local.model, mine.weights, local.data,
        key=local.key, lr=task.lr, epochs=task.epochs, batch=task.batch, momentum=task.momentum,
    )  # fmt: skip
    return Done(Trained(local.data.weight.sum()), mine=Mine(weights))


PROGRAMS = {Train: train}


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    return mine.weights
