"""FedMedian: the middle value of every weight instead of the mean, so that a few bad clients cannot pull it away.

Yin et al., "Byzantine-Robust Distributed Learning", ICML 2018, Algorithm 1 (option I), with local steps in between.

This is a whole method. Copy it to `src/potluck/methods/`, change it, add its line to `METHODS` in
`methods/__init__.py`, and the battery in `tests/methods/test_battery.py` finds it there. It also runs as it is,
from outside the package:

    potluck run --method examples/a_method_of_your_own.py --data made
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.fleet import Done, Fleet, Local, Params
from potluck.learn import Recipe, fit
from potluck.methods.parts import checks
from potluck.methods.parts.cohort import sample


@dataclass(frozen=True)
class Config:  # what a user may set, with the paper's symbols and defaults
    recipe: Recipe = Recipe(epochs=2)  # epochs, batch, lr, momentum: `method.recipe.lr` in an experiment
    cohort: int = 0  # clients per round; 0: all
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)


@dataclass(frozen=True)
class State:  # everything the server must remember, and nothing else
    weights: Params
    round: int = 0


@dataclass(frozen=True)
class Train:  # server to client
    weights: Params
    recipe: Recipe


@dataclass(frozen=True)
class Trained:  # client to server
    weights: Params
    examples: Tensor


def start(weights: Params, cfg: Config) -> State:
    return State(weights)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        chosen = sample(fleet, cfg.cohort, cfg.seed, state.round)
        task = Train(state.weights, cfg.recipe)
        updates = [arrival.update for arrival in fleet.gather({client: task for client in chosen})]
        weights = median([u.weights for u in updates]) if updates else state.weights
        state = State(weights, state.round + 1)
        yield state  # the run records, evaluates, saves and stops here


def median(models: list[Params]) -> Params:
    """Algorithm 1, option I: coordinate by coordinate."""
    return {name: torch.stack([model[name] for model in models]).median(0).values for name in models[0]}


def train(task: Train, local: Local) -> Done:
    """Written for one client; the engine runs a stack of them at once."""
    weights = fit(local.model, task.weights, local.data, task.recipe, key=local.key)
    return Done(Trained(weights, local.data.weight.sum()))


PROGRAMS = {Train: train}


def shared(state: State) -> Params:
    return state.weights
