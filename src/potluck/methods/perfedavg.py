"""Per-FedAvg: a shared model that becomes a good personal one after one gradient step on a client's samples.

Fallah et al., "Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic Meta-Learning Approach",
NeurIPS 2020, Algorithm 1. A local step takes three mini-batches: w' = w - alpha grad f(w, D), then
w <- w - beta (I - alpha H(w, D'')) grad f(w', D'). `form` is the approximation of section 5: "first" leaves H out (FO),
"hessian-free" takes the product with H from two gradients (HF, eq. 19).
Deviations: the personal model is one step of alpha on all samples of a client, from the model it last received.
Batch statistics are those met at w'.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from potluck import keys
from potluck.fleet import ClientId, Data, Done, Fleet, Local, Params
from potluck.learn import Recipe, batches, mean_loss, revisited, slope_of, step_keys, steps, take
from potluck.methods.fedavg import State, Trained, averaged, shared, start
from potluck.methods.parts import checks
from potluck.methods.parts.merge import MEAN, Merge
from potluck.release import Release
from potluck.spaces import Range, Space

__all__ = ["PROGRAMS", "State", "Trained", "shared", "start"]  # with those of FedAvg


@dataclass(frozen=True)
class Config:
    UNUSED: ClassVar[tuple[str, ...]] = ("recipe.momentum", "recipe.optimiser", "recipe.clip")
    form: Literal["first", "hessian-free"] = "first"
    alpha: float = 0.01  # learning rate of the personal step
    delta: float = 0.001  # distance of the two gradients of the Hessian-free form
    recipe: Recipe = Recipe(epochs=2)  # lr is beta
    cohort: int = 0  # clients per round; 0: all
    merge: Merge = MEAN  # how the server combines models
    seed: int = 0

    def __post_init__(self) -> None:
        checks.unused(self)
        checks.at_least(self, "cohort", 0)
        checks.one_of(self, "form", ("first", "hessian-free"))
        checks.above(self, "alpha", 0.0)
        checks.above(self, "delta", 0.0)


SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True), "alpha": Range(0.005, 0.5, log=True)}


@dataclass(frozen=True)
class Mine:
    weights: Params  # the received model after one step here


@dataclass(frozen=True)
class Train:
    """Server to client."""

    weights: Params
    form: str
    alpha: float
    delta: float
    recipe: Recipe


def private(weights: Params, cfg: Config) -> Mine:
    return Mine(weights)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        task = Train(state.weights, cfg.form, cfg.alpha, cfg.delta, cfg.recipe)
        weights = averaged(fleet, task, state.weights, cfg.cohort, cfg.seed, state.round, merge=cfg.merge)
        state = State(weights, state.round + 1)
        yield state


def train(task: Train, local: Local) -> Done:
    model, data, recipe = local.model, local.data, task.recipe
    moving = [name for name in task.weights if name in model.trainable]
    fixed = {name: value for name, value in task.weights.items() if name not in moving}

    def slope(at: list[Tensor], part: Data, key: Tensor) -> tuple[list[Tensor], Params]:
        return slope_of(lambda weights, rows, k: mean_loss(model, weights, rows, k), moving, at, fixed, part, key)

    w = [task.weights[name] for name in moving]
    revisited(data.weight, 1)
    gradient, _ = slope(w, data, keys.fold(local.key, "personal"))
    adapted = [value - task.alpha * g for value, g in zip(w, gradient, strict=True)]
    rows, counts = batches(data, recipe.batch, recipe.epochs, local.key)  # D
    second = batches(data, recipe.batch, recipe.epochs, keys.fold(local.key, "D'"))[0]
    third = second
    if task.form == "hessian-free":
        third = batches(data, recipe.batch, recipe.epochs, keys.fold(local.key, "D''"))[0]
        revisited(counts, 1)  # for two gradients
    own_keys = step_keys(local.key, counts)
    for step, row, count in steps(rows, counts):
        key, live = own_keys[step], count.sum() > 0
        here, _ = slope(w, take(data, row, count), key)
        tried = [value - task.alpha * g for value, g in zip(w, here, strict=True)]
        outer, buffers = slope(tried, take(data, second[step, : len(row)], count), key)
        if task.form == "hessian-free":  # eq. (19)
            part = take(data, third[step, : len(row)], count)
            ahead, _ = slope([v + task.delta * g for v, g in zip(w, outer, strict=True)], part, key)
            behind, _ = slope([v - task.delta * g for v, g in zip(w, outer, strict=True)], part, key)
            bend = [(a - b) / (2.0 * task.delta) for a, b in zip(ahead, behind, strict=True)]
            outer = [g - task.alpha * h for g, h in zip(outer, bend, strict=True)]
        w = [value - recipe.lr * live * g for value, g in zip(w, outer, strict=True)]
        fixed |= {name: torch.where(live, new, fixed[name]) for name, new in buffers.items()}
    found = {**fixed, **dict(zip(moving, w, strict=True))}
    tuned = {**task.weights, **dict(zip(moving, adapted, strict=True))}
    update = Trained({name: found[name] for name in task.weights}, data.weight.sum())
    return Done(update, mine=Mine(tuned))


RELEASES = {Trained: Release(models=("weights",), weight="examples")}
PROGRAMS = {Train: train}
HEADLINE = "own"


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    return mine.weights
