"""SCAFFOLD: control variates correct the drift of each client away from what the others learn.

Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020, Algorithm 1 with
option II for the client's control variate (line 12) and the global learning rate eta_g (line 16). The equations of the
variates are in `parts/correction.py`.
Deviations: models have equal weights in the mean, as printed; `weighted` uses the numbers of samples instead.
Buffers (batch statistics) have no gradient and so no control variate; they are averaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from potluck.fleet import Done, Fleet, Local, Params, column
from potluck.learn import Recipe, fit
from potluck.methods.parts import checks, correction
from potluck.methods.parts.cohort import sample
from potluck.release import Release
from potluck.spaces import Choice, Range, Space
from potluck.tensors import each, mean, zeros_like


@dataclass(frozen=True)
class Config:
    UNUSED: ClassVar[tuple[str, ...]] = ("recipe.momentum", "recipe.optimiser", "recipe.clip")
    recipe: Recipe = Recipe(epochs=2)  # lr is eta_l
    global_lr: float = 1.0  # eta_g
    weighted: bool = False  # weigh models by their samples instead of equally
    cohort: int = 0  # |S|, clients per round; 0: all
    seed: int = 0

    def __post_init__(self) -> None:
        checks.unused(self, "control variates assume plain SGD")
        checks.at_least(self, "cohort", 0)
        checks.above(self, "global_lr", 0.0)


SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True), "global_lr": Choice(0.5, 1.0)}


@dataclass(frozen=True)
class State:
    weights: Params  # x
    control: Params  # c
    round: int = 0


@dataclass(frozen=True)
class Mine:
    control: Params  # c_i, stays on the client


@dataclass(frozen=True)
class Train:
    """Server to client."""

    weights: Params
    control: Params
    recipe: Recipe


@dataclass(frozen=True)
class Trained:
    """Client to server: what changed."""

    BOUNDED: ClassVar[dict[str, str]] = {"weights": "", "control": ""}
    weights: Params  # delta y_i = y_i - x
    control: Params  # delta c_i
    examples: Tensor


def start(weights: Params, cfg: Config) -> State:
    return State(weights, zeros_like(weights))


def private(weights: Params, cfg: Config) -> Mine:
    return Mine(zeros_like(weights))


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        task = Train(state.weights, state.control, cfg.recipe)
        chosen = sample(fleet, cfg.cohort, cfg.seed, state.round)
        answers = fleet.gather({client: task for client in chosen})
        weights, control = state.weights, state.control
        if answers:
            step = mean(column(answers, "weights"), column(answers, "examples") if cfg.weighted else None)
            weights = each(lambda x, d: x + cfg.global_lr * d if x.is_floating_point() else x, weights, step)  # line 16
            control = correction.moved(control, column(answers, "control"), len(fleet.clients))  # line 17
        state = State(weights, control, state.round + 1)
        yield state


def train(task: Train, local: Local) -> Done:
    mine: Mine = local.mine
    pull = correction.variate(task.control, mine.control)  # line 10
    weights = fit(local.model, task.weights, local.data, task.recipe, key=local.key, pull=pull)
    samples, recipe = local.data.weight.sum(), task.recipe
    steps = recipe.epochs * torch.ceil(samples / recipe.batch)  # K
    trainable = [name for name in weights if name in local.model.trainable]
    control = correction.new_own(
        mine.control, task.control, task.weights, weights, steps, recipe.lr, trainable
    )  # line 12
    update = Trained(correction.change(weights, task.weights), correction.change(control, mine.control), samples)
    return Done(update, mine=Mine(control), own=weights)


def releases(cfg: Config) -> dict[type, Release]:
    uneven = "it weighs models by samples and variates equally" if cfg.weighted else ""
    return {Trained: Release(changes=("weights", "control"), counts=("examples",), single=uneven, by_fit=True)}


PROGRAMS = {Train: train}


def shared(state: State) -> Params:
    return state.weights
