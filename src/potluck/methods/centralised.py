"""Centralised: everybody hands over her data and one model is trained on all of it; what privacy costs.

Not a federated method: the raw samples cross the wire once and are paid for in bytes and seconds. From then on the
server trains alone, `epochs` of the pool per round, and is charged its counted MACs at `server_macs_per_second`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from potluck import keys
from potluck.fleet import ClientId, Data, Done, Fleet, Local, Params
from potluck.learn import sgd, training_macs
from potluck.methods.parts import checks


@dataclass(frozen=True)
class Config:
    epochs: int = 2  # of the pool per round
    batch: int = 32
    lr: float = 0.05
    momentum: float = 0.0
    clip: float = 0.0  # largest norm of a gradient; 0 does not clip
    server_macs_per_second: float = 5e10  # speed of the machine that trains; an ordinary PC's
    seed: int = 0

    def __post_init__(self) -> None:
        checks.local_training(self)
        checks.at_least(self, "clip", 0)
        checks.above(self, "server_macs_per_second", 0.0)


@dataclass(frozen=True)
class State:
    weights: Params
    pool: Data | None = None
    round: int = 0


@dataclass(frozen=True)
class Hand:
    """Server to client: hand over your data."""


@dataclass(frozen=True)
class Handed:
    """Client to server."""

    data: Data
    examples: Tensor


def start(weights: Params, cfg: Config) -> State:
    return State(weights)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while state.pool is None:
        handed = [arrival.update.data for arrival in fleet.gather({client: Hand() for client in list(fleet.idle)})]
        if handed:
            state = State(state.weights, _pool(handed))
            yield state
    passes = cfg.epochs * float(state.pool.weight.sum())
    seconds = passes * training_macs(fleet.home.model, state.weights, state.pool) / cfg.server_macs_per_second
    while True:
        weights = sgd(
            fleet.home.model, state.weights, state.pool,
            key=keys.key(cfg.seed, state.round, "centralised"),
            lr=cfg.lr, epochs=cfg.epochs, batch=cfg.batch, momentum=cfg.momentum, clip=cfg.clip,
        )  # fmt: skip
        fleet.spend(seconds)
        state = State(weights, state.pool, state.round + 1)
        yield state


def _pool(handed: list[Data]) -> Data:
    """All samples that count, one after another."""

    def joined(part: str) -> Tensor | None:
        values = [getattr(data, part)[data.weight > 0] for data in handed if getattr(data, part) is not None]
        return torch.cat(values) if values else None

    x, y, weight = joined("x"), joined("y"), joined("weight")
    assert x is not None
    assert y is not None
    assert weight is not None
    return Data(x, y, weight, joined("t"), joined("length"))


def hand(task: Hand, local: Local) -> Done:
    return Done(Handed(local.data, local.data.weight.sum()))


PROGRAMS = {Hand: hand}


def shared(state: State) -> Params:
    return state.weights


def personal(state: State, client: ClientId, mine: None) -> Params:
    return state.weights
