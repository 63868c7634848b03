"""Local: each client trains on its own samples only; the baseline that learning together must beat.

No weights travel. The server sends the recipe, and a client reports how many samples it used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from potluck.fleet import ClientId, Done, Fleet, Local, Params
from potluck.learn import Recipe, fit
from potluck.methods.parts import checks
from potluck.methods.parts.cohort import sample
from potluck.release import Release
from potluck.spaces import Range, Space


@dataclass(frozen=True)
class Config:
    recipe: Recipe = Recipe(epochs=2)
    cohort: int = 0  # clients that train per round; 0: all
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)


SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True)}


@dataclass(frozen=True)
class State:
    round: int = 0


@dataclass(frozen=True)
class Mine:
    weights: Params  # never leaves the client


@dataclass(frozen=True)
class Train:
    recipe: Recipe


@dataclass(frozen=True)
class Trained:
    examples: Tensor


def start(weights: Params, cfg: Config) -> State:
    return State()


def private(weights: Params, cfg: Config) -> Mine:
    return Mine(weights)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    task = Train(cfg.recipe)
    while True:
        fleet.gather({client: task for client in sample(fleet, cfg.cohort, cfg.seed, state.round)})
        state = State(state.round + 1)
        yield state


def train(task: Train, local: Local) -> Done:
    weights = fit(local.model, local.mine.weights, local.data, task.recipe, key=local.key)
    return Done(Trained(local.data.weight.sum()), mine=Mine(weights))


RELEASES = {Trained: Release(counts=("examples",))}
PROGRAMS = {Train: train}
HEADLINE = "own"


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    return mine.weights
