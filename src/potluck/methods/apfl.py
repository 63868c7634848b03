"""APFL: each client mixes its own model with the global one, and learns the share of each.

Deng et al., "Adaptive Personalized Federated Learning", 2020, Algorithm 1. A client trains w, its copy of the global
model, and v, its own, on the same mini-batches: v follows the gradient of f(alpha v + (1 - alpha) w). The share alpha
follows its own gradient <v - w, grad f(v_mixed)> (eq. 10).
Deviation: alpha moves once per task, on all samples of the client, after the models; in the paper on a mini-batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from potluck.fleet import ClientId, Data, Done, Fleet, Local, Params
from potluck.learn import Recipe, fit_mixed, mean_loss, mixed, revisited, slope_of
from potluck.methods.fedavg import State, Trained, averaged, shared, start
from potluck.methods.parts import checks
from potluck.methods.parts.merge import MEAN, Merge
from potluck.release import Release
from potluck.spaces import Choice, Range, Space

__all__ = ["PROGRAMS", "State", "Trained", "shared", "start"]  # with those of FedAvg


@dataclass(frozen=True)
class Config:
    UNUSED: ClassVar[tuple[str, ...]] = ("recipe.optimiser", "recipe.clip")
    alpha: float = 0.5  # share of a client's own model at the start
    adaptive: bool = True  # learn alpha; false: it stays
    recipe: Recipe = Recipe(epochs=2)  # of both models
    cohort: int = 0  # clients per round; 0: all
    merge: Merge = MEAN  # how the server combines models
    seed: int = 0

    def __post_init__(self) -> None:
        checks.unused(self)
        checks.at_least(self, "cohort", 0)
        checks.within(self, "alpha", 0.0, 1.0)


SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True), "alpha": Choice(0.25, 0.5, 0.75)}


@dataclass(frozen=True)
class Mine:
    weights: Params  # v_i
    mixed: Params  # alpha v_i + (1 - alpha) w_i, the personal model
    alpha: Tensor


@dataclass(frozen=True)
class Train:
    """Server to client."""

    weights: Params
    adaptive: bool
    recipe: Recipe


def private(weights: Params, cfg: Config) -> Mine:
    return Mine(weights, weights, torch.tensor(cfg.alpha))


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        task = Train(state.weights, cfg.adaptive, cfg.recipe)
        weights = averaged(fleet, task, state.weights, cfg.cohort, cfg.seed, state.round, merge=cfg.merge)
        state = State(weights, state.round + 1)
        yield state


def train(task: Train, local: Local) -> Done:
    model, data, mine = local.model, local.data, local.mine
    w, v = fit_mixed(model, task.weights, mine.weights, mine.alpha, data, task.recipe, key=local.key)
    alpha = _better(task, local, v, w) if task.adaptive else mine.alpha
    return Done(Trained(w, data.weight.sum()), mine=Mine(v, mixed(model, w, v, alpha), alpha))


def _better(task: Train, local: Local, v: Params, w: Params) -> Tensor:
    """Eq. (10): one step of alpha along <v - w, grad f(mixed)>, within 0 to 1."""

    def loss(weights: Params, batch: Data, key: Tensor) -> tuple[Tensor, Params]:
        value, _ = mean_loss(local.model, mixed(local.model, w, v, weights["alpha"]), batch, key)
        return value, {}

    revisited(local.data.weight, 1)
    (slope,), _ = slope_of(loss, ["alpha"], [local.mine.alpha], {}, local.data, local.key)
    alpha: Tensor = local.mine.alpha
    return (alpha - task.recipe.lr * slope).clamp(0.0, 1.0)


RELEASES = {Trained: Release(models=("weights",), weight="examples")}
PROGRAMS = {Train: train}
HEADLINE = "own"


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    return mine.mixed
