"""FedDyn: a linear term that each client updates makes local optima agree with the global one.

Acar et al., "Federated Learning Based on Dynamic Regularization", ICLR 2021, Algorithm 1. A client minimises
L_k(w) - <g_k, w> + alpha/2 ||w - w_t||² (eq. 1), then g_k <- g_k - alpha (w_k - w_t). The server keeps
h <- h - alpha/m Σ (w_k - w_t), and the next model is the mean of the models less h/alpha.
Deviation: none. Buffers (batch statistics) have no gradient; they are averaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from potluck.fleet import Done, Fleet, Local, Params, column
from potluck.learn import Pull, Recipe, fit
from potluck.methods.parts import checks
from potluck.methods.parts.cohort import sample
from potluck.release import Release
from potluck.spaces import Range, Space
from potluck.tensors import each, mean, zeros_like


@dataclass(frozen=True)
class Config:
    UNUSED: ClassVar[tuple[str, ...]] = ("recipe.optimiser", "recipe.clip")
    alpha: float = 0.1  # weight of the regulariser
    recipe: Recipe = Recipe(epochs=2)
    cohort: int = 0  # |P_t|, clients per round; 0: all
    seed: int = 0

    def __post_init__(self) -> None:
        checks.unused(self)
        checks.at_least(self, "cohort", 0)
        checks.above(self, "alpha", 0.0)


SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True), "alpha": Range(0.001, 0.1, log=True)}


@dataclass(frozen=True)
class State:
    weights: Params
    correction: Params  # h
    round: int = 0


@dataclass(frozen=True)
class Mine:
    gradient: Params  # g_k


@dataclass(frozen=True)
class Train:
    """Server to client."""

    weights: Params
    alpha: float
    recipe: Recipe


@dataclass(frozen=True)
class Trained:
    """Client to server."""

    weights: Params
    examples: Tensor


def start(weights: Params, cfg: Config) -> State:
    return State(weights, zeros_like(weights))


def private(weights: Params, cfg: Config) -> Mine:
    return Mine(zeros_like(weights))


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        task = Train(state.weights, cfg.alpha, cfg.recipe)
        chosen = sample(fleet, cfg.cohort, cfg.seed, state.round)
        models = column(fleet.gather({client: task for client in chosen}), "weights")
        weights, correction = state.weights, state.correction
        if models:
            average, share = mean(models), len(models) / len(fleet.clients)
            trained = fleet.home.model.trainable
            moved = {n: correction[n] - cfg.alpha * share * (average[n] - weights[n]) for n in weights if n in trained}
            correction = correction | moved
            weights = {n: v - correction[n] / cfg.alpha if n in trained else v for n, v in average.items()}
        state = State(weights, correction, state.round + 1)
        yield state


def train(task: Train, local: Local) -> Done:
    mine: Mine = local.mine
    pull = Pull(task.alpha, task.weights, times=-task.alpha, minus=mine.gradient)  # of eq. (1)
    weights = fit(local.model, task.weights, local.data, task.recipe, key=local.key, pull=pull)
    gradient = each(
        lambda g, new, old: g - task.alpha * (new - old) if g.is_floating_point() else g,
        mine.gradient, weights, task.weights,
    )  # fmt: skip
    return Done(Trained(weights, local.data.weight.sum()), mine=Mine(gradient), own=weights)


RELEASES = {Trained: Release(models=("weights",), counts=("examples",), by_fit=True)}
PROGRAMS = {Train: train}


def shared(state: State) -> Params:
    return state.weights
