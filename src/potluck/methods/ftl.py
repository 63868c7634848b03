"""FTL: federated averaging first, then each client fine-tunes the shared model on its own samples and keeps it.

The baseline of ClusterFL (Ouyang et al., MobiSys 2021, section 7.1) after Chen et al., "FedHealth", 2020. The first
`federated` share of the rounds is FedAvg. Each later round is one more fine-tuning of every client's own copy.
Deviation: FedHealth freezes the convolutions while tuning; here `tune` says what may move.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from potluck.fleet import ClientId, Done, Fleet, Local, Params
from potluck.learn import Recipe, fit
from potluck.methods import fedavg
from potluck.methods.fedavg import State, Train, Trained, averaged, shared, start
from potluck.methods.parts import checks
from potluck.spaces import Choice, Range, Space
from potluck.tensors import each

__all__ = ["PROGRAMS", "Config", "State", "Train", "Trained", "Tune", "Tuned", "personal", "server", "shared", "start"]


@dataclass(frozen=True)
class Config:
    federated: float = 0.8  # share of the rounds before fine-tuning begins
    tune: Literal["all", "last"] = "all"  # which weights fine-tuning moves
    recipe: Recipe = Recipe(epochs=2)  # of both phases
    rounds: int = 20  # of the whole run; stop.rounds of the experiment
    cohort: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        checks.share(self, "federated")
        checks.one_of(self, "tune", ("all", "last"))

    @property
    def turn(self) -> int:
        """The first round of fine-tuning."""
        return max(1, round(self.federated * self.rounds))


SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True), "federated": Choice(0.5, 0.8)}


@dataclass(frozen=True)
class Mine:
    weights: Params  # the client's own copy
    tuned: Tensor  # 0 until its first fine-tuning, then 1


@dataclass(frozen=True)
class Tune:
    """Server to client: the shared model, for clients without their own copy yet."""

    weights: Params
    last: bool
    recipe: Recipe


@dataclass(frozen=True)
class Tuned:
    examples: Tensor


def private(weights: Params, cfg: Config) -> Mine:
    return Mine(weights, torch.zeros(()))


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        weights = state.weights
        if state.round < cfg.turn:
            weights = averaged(fleet, Train(weights, cfg.recipe), weights, cfg.cohort, cfg.seed, state.round)
        else:  # all clients, whatever the cohort: each one needs its own model
            tune = Tune(weights, cfg.tune == "last", cfg.recipe)
            fleet.gather({client: tune for client in list(fleet.idle)})
        state = State(weights, state.round + 1)
        yield state


def tune(task: Tune, local: Local) -> Done:
    mine: Mine = local.mine
    begin = each(lambda own, common: torch.where(mine.tuned > 0, own, common), mine.weights, task.weights)
    only = local.model.last_layers() if task.last else None
    weights = fit(local.model, begin, local.data, task.recipe, key=local.key, only=only)
    return Done(Tuned(local.data.weight.sum()), mine=Mine(weights, torch.ones(())))


PROGRAMS = {Train: fedavg.train, Tune: tune}


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    return mine.weights if bool(mine.tuned > 0) else state.weights
