"""Centralised: the clients upload their samples and one model is trained on all of them; what privacy costs.

Not a federated method. The raw samples cross the wire once, and their bytes and seconds are counted. From then on the
server trains alone, `recipe.epochs` of the pool per round. Its counted MACs take time at `server_macs_per_second`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from potluck import keys
from potluck.fleet import Data, Done, Fleet, Local, Params
from potluck.learn import Recipe, fit, training_macs
from potluck.methods.parts import checks
from potluck.methods.parts.cohort import ready
from potluck.needs import POOLED_ROWS
from potluck.spaces import Range, Space

USES = (POOLED_ROWS,)


@dataclass(frozen=True)
class Config:
    recipe: Recipe = Recipe(epochs=2)  # epochs of the pool per round
    server_macs_per_second: float = 5e10  # speed of the machine that trains; an ordinary PC's
    seed: int = 0

    def __post_init__(self) -> None:
        checks.above(self, "server_macs_per_second", 0.0)


SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True)}


@dataclass(frozen=True)
class State:
    weights: Params
    pool: Data | None = None
    round: int = 0


@dataclass(frozen=True)
class Hand:
    """Server to client: upload your samples."""


@dataclass(frozen=True)
class Handed:
    """Client to server."""

    data: Data
    examples: Tensor


def start(weights: Params, cfg: Config) -> State:
    return State(weights)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while state.pool is None:
        handed = [arrival.update.data for arrival in fleet.gather({client: Hand() for client in ready(fleet)})]
        if handed:
            state = State(state.weights, pooled(handed))
            yield state
    passes = cfg.recipe.epochs * float(state.pool.weight.sum())
    seconds = passes * training_macs(fleet.home.model, state.weights, state.pool) / cfg.server_macs_per_second
    while True:
        key = keys.key(cfg.seed, state.round, "centralised")
        weights = fit(fleet.home.model, state.weights, state.pool, cfg.recipe, key=key)
        fleet.spend(seconds)
        state = State(weights, state.pool, state.round + 1)
        yield state


def pooled(handed: Sequence[Data]) -> Data:
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


RELEASES = "clients hand over their samples"
PROGRAMS = {Hand: hand}


def shared(state: State) -> Params:
    return state.weights
