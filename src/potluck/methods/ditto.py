"""Ditto: each client trains a personal model that a proximal term keeps close to the global model.

Li et al., "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021, Algorithm 1 with FedAvg as
the solver of the global model: v_k <- v_k - eta (grad F_k(v_k) + lambda (v_k - w)), w being the model received.
Deviation: the personal model trains with the recipe of the global one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from potluck import keys
from potluck.fleet import ClientId, Done, Fleet, Local, Params
from potluck.learn import Recipe, fit
from potluck.methods.fedavg import State, Trained, averaged, shared, start
from potluck.methods.parts import checks
from potluck.methods.parts.correction import prox
from potluck.methods.parts.merge import MEAN, Merge
from potluck.release import Release
from potluck.spaces import Range, Space

__all__ = ["PROGRAMS", "State", "Trained", "shared", "start"]  # with those of FedAvg


@dataclass(frozen=True)
class Config:
    lam: float = 0.1  # lambda: how strongly the global model pulls the personal one
    recipe: Recipe = Recipe(epochs=2)  # of both models
    cohort: int = 0  # clients per round; 0: all
    merge: Merge = MEAN  # how the server combines models
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        checks.at_least(self, "lam", 0.0)


SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True), "lam": Range(0.01, 2.0, log=True)}


@dataclass(frozen=True)
class Mine:
    weights: Params  # v_k, never leaves the client


@dataclass(frozen=True)
class Train:
    """Server to client."""

    weights: Params
    lam: float
    recipe: Recipe


def private(weights: Params, cfg: Config) -> Mine:
    return Mine(weights)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        task = Train(state.weights, cfg.lam, cfg.recipe)
        weights = averaged(fleet, task, state.weights, cfg.cohort, cfg.seed, state.round, merge=cfg.merge)
        state = State(weights, state.round + 1)
        yield state


def train(task: Train, local: Local) -> Done:
    model, data = local.model, local.data
    common = fit(model, task.weights, data, task.recipe, key=local.key)
    pull, again = prox(task.lam, task.weights), keys.fold(local.key, "personal")
    own = fit(model, local.mine.weights, data, task.recipe, key=again, pull=pull)
    return Done(Trained(common, data.weight.sum()), mine=Mine(own))


RELEASES = {Trained: Release(models=("weights",), weight="examples", by_fit=True)}
PROGRAMS = {Train: train}
HEADLINE = "own"


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    return mine.weights
