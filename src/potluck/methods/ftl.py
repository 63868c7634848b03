"""FTL: federated averaging first, then every client fine-tunes the common model on its own data and keeps it.

The baseline of ClusterFL (Ouyang et al., MobiSys 2021, section 7.1) after Chen et al., "FedHealth", 2020. For the
first `federated` share of the rounds this is FedAvg; from then on each round is one more local fine-tuning of
everybody's own copy. Deviation: FedHealth freezes the convolutions while tuning; `tune` names what may move ("all",
or "last": the last layer).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.errors import BadInput, Code
from potluck.fleet import ClientId, Done, Fleet, Local, Params
from potluck.learn import sgd
from potluck.methods import fedavg
from potluck.methods.fedavg import Train, Trained
from potluck.methods.parts import checks
from potluck.methods.parts.merge import averaged
from potluck.tensors import each

__all__ = [
    "PROGRAMS",
    "Config",
    "State",
    "Train",
    "Trained",
    "Tune",
    "Tuned",
    "personal",
    "server",
    "shared",
    "start",
]


@dataclass(frozen=True)
class Config:
    rounds: int = 20  # of the whole run; the experiment's stop.rounds
    federated: float = 0.8  # share of the rounds before fine-tuning begins
    tune: str = "all"  # which weights fine-tuning moves: all | last
    cohort: int = 0
    epochs: int = 2
    batch: int = 32
    lr: float = 0.05
    momentum: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        checks.local_training(self)
        if not 0.0 < self.federated <= 1.0:
            raise BadInput(Code.SETTING_VALUE, f"method.federated: {self.federated} given, allowed is above 0 to 1.")
        checks.one_of(self, "tune", ("all", "last"))

    @property
    def turn(self) -> int:
        """The first round of fine-tuning."""
        return max(1, round(self.federated * self.rounds))


@dataclass(frozen=True)
class State:
    weights: Params
    round: int = 0


@dataclass(frozen=True)
class Mine:
    weights: Params  # the client's own copy
    tuned: Tensor  # 0 until its first fine-tuning, then 1


@dataclass(frozen=True)
class Tune:
    """Server to client: the common model, for those who have no copy of their own yet."""

    weights: Params
    last: bool
    epochs: int
    batch: int
    lr: float
    momentum: float


@dataclass(frozen=True)
class Tuned:
    examples: Tensor


def start(weights: Params, cfg: Config) -> State:
    return State(weights)


def private(weights: Params, cfg: Config) -> Mine:
    return Mine(weights, torch.zeros(()))


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        weights = state.weights
        if state.round < cfg.turn:
            task = Train(weights, cfg.epochs, cfg.batch, cfg.lr, cfg.momentum)
            weights = averaged(fleet, task, weights, cfg.cohort, cfg.seed, state.round)
        else:  # everybody: nobody may be left without a model of her own
            tune = Tune(weights, cfg.tune == "last", cfg.epochs, cfg.batch, cfg.lr, cfg.momentum)
            fleet.gather({client: tune for client in list(fleet.idle)})
        state = State(weights, state.round + 1)
        yield state


def tune(task: Tune, local: Local) -> Done:
    mine: Mine = local.mine
    begin = each(lambda own, common: torch.where(mine.tuned > 0, own, common), mine.weights, task.weights)
    only = frozenset(n for n in local.model.trainable if n.startswith(local.model.layers()[-1])) if task.last else None
    weights = sgd(
        local.model, begin, local.data, only=only,
        key=local.key, lr=task.lr, epochs=task.epochs, batch=task.batch, momentum=task.momentum,
    )  # fmt: skip
    return Done(Tuned(local.data.weight.sum()), mine=Mine(weights, torch.ones(())))


PROGRAMS = {Train: fedavg.train, Tune: tune}


def shared(state: State) -> Params:
    return state.weights


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    return mine.weights if bool(mine.tuned > 0) else state.weights
