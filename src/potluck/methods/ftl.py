"""FTL: federated averaging first, then each client fine-tunes the shared model on its own samples and keeps it.

The baseline of ClusterFL (Ouyang et al., MobiSys 2021, section 7.1) after Chen et al., "FedHealth", 2020. The first
`federated` share of the run (of its rounds or its budget) is FedAvg. Each later round is one more fine-tuning of every
client's own copy. Deviation: FedHealth freezes the convolutions while tuning; here `tune` says what may move.
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
from potluck.methods.fedavg import Train, Trained, averaged
from potluck.methods.parts import checks
from potluck.methods.parts.cohort import ready
from potluck.methods.parts.merge import MEAN, Merge
from potluck.release import Release
from potluck.spaces import Choice, Range, Space
from potluck.tensors import each

__all__ = ["PROGRAMS", "Config", "State", "Train", "Trained", "Tune", "Tuned", "personal", "server", "shared", "start"]


@dataclass(frozen=True)
class Config:
    federated: float = 0.8  # share of the run before fine-tuning begins
    tune: Literal["all", "last"] = "all"  # which weights fine-tuning moves
    recipe: Recipe = Recipe(epochs=2)  # of both phases
    cohort: int = 0
    merge: Merge = MEAN  # how the server combines models
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        checks.share(self, "federated")
        checks.one_of(self, "tune", ("all", "last"))


@dataclass(frozen=True)
class State:
    weights: Params
    round: int = 0
    tuning: bool = False  # fine-tuning has begun


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


def start(weights: Params, cfg: Config) -> State:
    return State(weights)


def shared(state: State) -> Params:
    return state.weights


def private(weights: Params, cfg: Config) -> Mine:
    return Mine(weights, torch.zeros(()))


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        weights, tuning = state.weights, state.tuning or turned(fleet.progress, state.round, cfg.federated)
        if not tuning:
            weights = averaged(
                fleet, Train(weights, cfg.recipe), weights, cfg.cohort, cfg.seed, state.round, merge=cfg.merge
            )
        else:  # all clients, whatever the cohort: each one needs its own model
            tune = Tune(weights, cfg.tune == "last", cfg.recipe)
            fleet.gather({client: tune for client in ready(fleet)})
        state = State(weights, state.round + 1, tuning)
        yield state


def turned(progress: float, round_: int, share: float) -> bool:
    """Whether fine-tuning begins with this round: the one nearest to `share` of the run, and never the first.

    The run's rounds are known from how much of it the rounds so far took.
    """
    if round_ == 0 or progress == 0.0:
        return False
    rounds = round(round_ / progress, 6)  # exact where the run has a number of rounds
    return round_ >= max(1, round(share * rounds))


def tune(task: Tune, local: Local) -> Done:
    mine: Mine = local.mine
    begin = each(lambda own, common: torch.where(mine.tuned > 0, own, common), mine.weights, task.weights)
    only = local.model.last_layers() if task.last else None
    weights = fit(local.model, begin, local.data, task.recipe, key=local.key, only=only)
    return Done(Tuned(local.data.weight.sum()), mine=Mine(weights, torch.ones(())), own=weights)


RELEASES = {Trained: Release(models=("weights",), weight="examples", by_fit=True), Tuned: Release(counts=("examples",))}
PROGRAMS = {Train: fedavg.train, Tune: tune}


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    return mine.weights if bool(mine.tuned > 0) else state.weights
