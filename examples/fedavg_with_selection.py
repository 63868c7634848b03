"""FedAvg whose clients skip the samples they know already: Centaur's data selection in a method without access points.

McMahan et al., AISTATS 2017, Algorithm 1, with Eq. (2) of Mo et al. (Centaur) before the first step: samples of low
loss under the received model are likely to be left out; `outliers` also leaves out those of the very highest.

    potluck run --method examples/fedavg_with_selection.py --data made
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from torch import Tensor

from potluck.fleet import Done, Fleet, Local, Params, Work
from potluck.learn import Recipe, fit
from potluck.methods.fedavg import averaged
from potluck.methods.parts import checks
from potluck.methods.parts.selection import Rule, expected_shares, select


@dataclass(frozen=True)
class Config:
    recipe: Recipe = Recipe(epochs=2)
    cohort: int = 0  # clients per round; 0: all
    alpha: float = 5.0  # exponent of discarding; 0 is FedAvg
    outliers: float = 0.0  # share of the highest losses left out
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        _ = self.rule

    @property
    def rule(self) -> Rule:
        return Rule(self.alpha, beta=0.0, outliers=self.outliers)  # there is no access point to hand samples to


@dataclass(frozen=True)
class State:
    weights: Params
    round: int = 0


@dataclass(frozen=True)
class Train:
    """Server to client."""

    weights: Params
    rule: Rule
    recipe: Recipe


@dataclass(frozen=True)
class Trained:
    """Client to server."""

    weights: Params
    examples: Tensor  # those that were learned from


def start(weights: Params, cfg: Config) -> State:
    return State(weights)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        task = Train(state.weights, cfg.rule, cfg.recipe)
        weights = averaged(fleet, task, state.weights, cfg.cohort, cfg.seed, state.round)
        state = State(weights, state.round + 1)
        yield state


def train(task: Train, local: Local) -> Done:
    data, model = local.data, local.model
    losses = model.losses(model.logits(task.weights, data.x, t=data.t, length=data.length), data.y)
    kept = select(task.rule, losses, data.weight, local.key).keep
    weights = fit(model, task.weights, replace(data, weight=kept), task.recipe, key=local.key)
    return Done(Trained(weights, kept.sum()))


def expected(task: Train, local: Local, samples: int) -> list[Work]:
    """How many samples are kept is not known beforehand: one pass over all, and the expected share of each epoch."""
    one = replace(task, rule=Rule(0.0, 0.0), recipe=replace(task.recipe, epochs=1))
    two = replace(one, recipe=replace(task.recipe, epochs=2))
    more = task.recipe.epochs * expected_shares(task.rule)[1] - 1.0
    return [Work(one, macs=1.0 - more, up=1.0), Work(two, macs=more)]


PROGRAMS = {Train: train}
WORK = {Train: expected}


def shared(state: State) -> Params:
    return state.weights
