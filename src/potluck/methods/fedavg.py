"""FedAvg: aggregate the clients' models by their mean, weighted by the number of samples of each client.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017, Algorithm 1.
Deviation: none. `recipe.momentum` (0 in the paper) belongs to the client's optimiser and restarts with every task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from potluck.fleet import Done, Fleet, Local, Message, Params, column
from potluck.learn import Recipe, fit
from potluck.methods.parts import checks
from potluck.methods.parts.cohort import sample
from potluck.methods.parts.merge import MEAN, Merge, merged
from potluck.release import Release
from potluck.spaces import Range, Space


@dataclass(frozen=True)
class Config:
    recipe: Recipe = Recipe(epochs=2)  # E, B and eta
    cohort: int = 0  # clients per round (C·K in the paper); 0: all
    merge: Merge = MEAN  # how the server combines models
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)


SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True)}


@dataclass(frozen=True)
class State:
    weights: Params
    round: int = 0


@dataclass(frozen=True)
class Train:
    """Server to client."""

    weights: Params
    recipe: Recipe


@dataclass(frozen=True)
class Trained:
    """Client to server."""

    weights: Params
    examples: Tensor


def start(weights: Params, cfg: Config) -> State:
    return State(weights)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        task = Train(state.weights, cfg.recipe)
        weights = averaged(fleet, task, state.weights, cfg.cohort, cfg.seed, state.round, merge=cfg.merge)
        state = State(weights, state.round + 1)
        yield state


def averaged(fleet: Fleet, task: Message, weights: Params, cohort: int, *key: int | str, merge: Merge = MEAN) -> Params:
    """One round: a random cohort does the task; return the mean of its models, weighted by their samples.

    Without any answer the weights stay as they were. `merge` may name another rule than the mean.
    """
    chosen = sample(fleet, cohort, *key)
    answers = fleet.gather({client: task for client in chosen})
    if not answers:
        return weights
    return merged(column(answers, "weights"), column(answers, "examples"), merge, weights)


def train(task: Train, local: Local) -> Done:
    weights = fit(local.model, task.weights, local.data, task.recipe, key=local.key)
    return Done(Trained(weights, local.data.weight.sum()), own=weights)


RELEASES = {Trained: Release(models=("weights",), weight="examples", by_fit=True)}
PROGRAMS = {Train: train}


def shared(state: State) -> Params:
    return state.weights
