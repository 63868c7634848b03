"""Serveralone: one model trained on the server's own rows only, and handed to everybody; what the clients add to it.

The baseline of FedConv (Shen et al., MobiSys 2024, section 5.3), decisive for any method that tunes on server rows. As
FedConv it holds a part of the rows back to choose by: the best epoch on them is kept. It is charged its counted MACs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from torch import Tensor

from potluck import keys
from potluck.errors import BadInput, Code
from potluck.fleet import ClientId, Done, Fleet, Local, Params
from potluck.learn import Recipe, fit, training_macs
from potluck.methods.parts import checks
from potluck.methods.parts.cohort import sample
from potluck.methods.parts.submodels import tuning


@dataclass(frozen=True)
class Config:
    # Epochs are over the server rows, per round: what FedConv spends on a model, pre-training apart.
    recipe: Recipe = Recipe(epochs=20, lr=1e-3, optimiser="adam")
    first: int = 5  # epochs more in the first round, as FedConv's pre-training
    validate_share: float = 0.2
    cohort: int = 0
    server_macs_per_second: float = 5e10
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        checks.at_least(self, "first", 0)
        checks.above(self, "server_macs_per_second", 0.0)
        if not 0.0 < self.validate_share < 1.0:
            raise BadInput(
                Code.SETTING_VALUE,
                f"method.validate_share: {self.validate_share} given, allowed is above 0 and below 1.",
            )


@dataclass(frozen=True)
class State:
    weights: Params  # the best so far on the validation rows
    latest: Params  # where training goes on
    score: float = -1.0
    round: int = 0


@dataclass(frozen=True)
class Take:
    """Server to client: the model as it is now."""

    weights: Params


@dataclass(frozen=True)
class Taken:
    examples: Tensor


@dataclass(frozen=True)
class Mine:
    weights: Params


def start(weights: Params, cfg: Config) -> State:
    return State(weights, weights)


def private(weights: Params, cfg: Config) -> Mine:
    return Mine({})


def check(cfg: Config, home: Local) -> None:
    if not home.data.weight.shape[0]:
        raise BadInput(
            Code.METHOD_NEEDS,
            "server.share: 0 given, serveralone trains on the server's rows: a share above 0 is allowed.",
        )


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    model = fleet.home.model
    rows = tuning.divided(fleet.home.data, keys.key(cfg.seed, "server rows"), cfg.validate_share)
    while True:
        latest, best, score = state.latest, state.weights, state.score
        epochs = cfg.recipe.epochs + (cfg.first if state.round == 0 else 0)
        work = epochs * float(rows.tune.weight.sum()) * training_macs(model, latest, rows.tune)
        fleet.spend(work / cfg.server_macs_per_second, f"round {state.round + 1}: training, {epochs} epochs")
        for epoch in range(epochs):
            key = keys.key(cfg.seed, state.round, epoch, "serveralone")
            latest = fit(model, latest, rows.tune, replace(cfg.recipe, epochs=1), key=key)
            found = tuning.accuracy(model, latest, rows.valid)
            if found >= score:
                best, score = latest, found
        fleet.gather({client: Take(best) for client in sample(fleet, cfg.cohort, cfg.seed, state.round)})
        state = State(best, latest, score, state.round + 1)
        yield state


def take(task: Take, local: Local) -> Done:
    return Done(Taken(local.data.weight.sum()), mine=Mine(task.weights))


PROGRAMS = {Take: take}


def shared(state: State) -> Params:
    return state.weights


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    return mine.weights or state.weights
