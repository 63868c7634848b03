"""pFedMe: personal models by Moreau envelopes, around a model that follows them.

T. Dinh et al., "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020, Algorithm 1. For each mini-batch
a client finds theta ~ argmin f(theta) + lambda/2 ||theta - w||² (eq. 3) by K gradient steps, then moves its copy of the
global model: w <- w - eta lambda (w - theta). The server takes w <- (1 - beta) w + beta mean(w_i).
Deviation: theta starts from the last one, not from w, as in the released code. Models are weighted by their samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from potluck.fleet import ClientId, Done, Fleet, Local, Params
from potluck.learn import Recipe, batches, mean_loss, revisited, slope_of, step_keys, steps, take
from potluck.methods.fedavg import State, Trained, averaged, shared, start
from potluck.methods.parts import checks
from potluck.methods.parts.merge import MEAN, Merge
from potluck.release import Release
from potluck.spaces import Choice, Range, Space
from potluck.tensors import mix

__all__ = ["PROGRAMS", "State", "Trained", "shared", "start"]  # with those of FedAvg


@dataclass(frozen=True)
class Config:
    UNUSED: ClassVar[tuple[str, ...]] = ("recipe.momentum", "recipe.optimiser", "recipe.clip")
    lam: float = 15.0  # lambda: how close a personal model stays
    inner: int = 5  # K: gradient steps on each mini-batch
    eta: float = 0.01  # learning rate of the global model's copy
    beta: float = 1.0  # how far the server follows the mean
    recipe: Recipe = Recipe(epochs=2)  # lr is that of the inner steps; epochs and batch make R
    cohort: int = 0  # clients per round; 0: all
    merge: Merge = MEAN  # how the server combines models
    seed: int = 0

    def __post_init__(self) -> None:
        checks.unused(self)
        checks.at_least(self, "cohort", 0)
        checks.above(self, "lam", 0.0)
        checks.at_least(self, "inner", 1)
        checks.above(self, "eta", 0.0)
        checks.above(self, "beta", 0.0)


SPACE: Space = {"recipe.lr": Range(0.005, 0.1, log=True), "eta": Range(0.005, 0.06, log=True), "lam": Choice(5.0, 15.0)}


@dataclass(frozen=True)
class Mine:
    weights: Params  # theta_i, never leaves the client


@dataclass(frozen=True)
class Train:
    """Server to client."""

    weights: Params  # w
    lam: float
    inner: int
    eta: float
    recipe: Recipe


def private(weights: Params, cfg: Config) -> Mine:
    return Mine(weights)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        task = Train(state.weights, cfg.lam, cfg.inner, cfg.eta, cfg.recipe)
        average = averaged(fleet, task, state.weights, cfg.cohort, cfg.seed, state.round, merge=cfg.merge)
        state = State(mix(state.weights, average, cfg.beta), state.round + 1)
        yield state


def train(task: Train, local: Local) -> Done:
    model, data, recipe = local.model, local.data, task.recipe
    moving = [name for name in task.weights if name in model.trainable]
    rows, counts = batches(data, recipe.batch, recipe.epochs, local.key)
    revisited(counts, task.inner - 1)
    own_keys = step_keys(local.key, counts)
    w, theta, fixed = [task.weights[n] for n in moving], [task.weights[n] for n in moving], dict(task.weights)
    for name in moving:
        del fixed[name]
    for step, row, count in steps(rows, counts):
        batch, live = take(data, row, count), count.sum() > 0
        for _ in range(task.inner):  # theta ~ argmin of eq. (3)
            slope, buffers = slope_of(
                lambda weights, part, key: mean_loss(model, weights, part, key),
                moving, theta, fixed, batch, own_keys[step],
            )  # fmt: skip
            rate = recipe.lr * live
            theta = [t - rate * (g + task.lam * (t - a)) for t, g, a in zip(theta, slope, w, strict=True)]
            fixed |= {name: torch.where(live, new, fixed[name]) for name, new in buffers.items()}
        w = [a - task.eta * task.lam * live * (a - t) for a, t in zip(w, theta, strict=True)]  # line 8
    order = list(task.weights)
    common = {**fixed, **dict(zip(moving, w, strict=True))}
    own = {**fixed, **dict(zip(moving, theta, strict=True))}
    update = Trained({name: common[name] for name in order}, data.weight.sum())
    return Done(update, mine=Mine({name: own[name] for name in order}))


RELEASES = {Trained: Release(models=("weights",), weight="examples")}
PROGRAMS = {Train: train}
HEADLINE = "own"


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    return mine.weights
