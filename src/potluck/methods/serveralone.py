"""Serveralone: one model trained on the server rows only and given to all clients; shows what the clients would add.

The baseline of FedConv (Shen et al., MobiSys 2024, section 5.3), decisive for any method that tunes on server rows. As
FedConv it keeps a part of the rows to choose by: the best epoch on them is kept. It is charged its counted MACs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from potluck import keys
from potluck.fleet import Done, Fleet, Local, Params
from potluck.learn import Recipe, fit
from potluck.methods.parts import checks
from potluck.methods.parts.cohort import sample
from potluck.methods.parts.submodels.train import Mine, personal, private
from potluck.methods.parts.submodels.tuning import ServerRows, Tuner, accuracy, divided, need_rows
from potluck.needs import SERVER_ROWS, SERVER_SHARE
from potluck.release import Release
from potluck.spaces import Range, Space

__all__ = ["personal", "private"]  # of the parts
KEY_SETTINGS = ("recipe.epochs", "recipe.lr", "server.pretrain_epochs", "server.validate_share")
NEEDS = {"server.share": SERVER_SHARE}
USES = (SERVER_ROWS,)
PRETRAINS = "server.pretrain_epochs"


@dataclass(frozen=True)
class Config:
    # Epochs are over the server rows, per round: what FedConv spends on a model, pre-training apart.
    recipe: Recipe = Recipe(epochs=20, lr=1e-3, optimiser="adam")
    server: ServerRows = ServerRows()  # its pretrain_epochs come on top in the first round
    cohort: int = 0  # clients per round that receive the model; 0: all
    server_macs_per_second: float = 5e10
    seed: int = 0
    MOVED: ClassVar[dict[str, str]] = {"first": "server.pretrain_epochs"}

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        checks.above(self, "server_macs_per_second", 0.0)


SPACE: Space = {"recipe.lr": Range(1e-4, 1e-2, log=True)}


@dataclass(frozen=True)
class State:
    weights: Params  # the best so far on the validation rows
    latest: Params  # where training continues
    score: float = -1.0
    round: int = 0


@dataclass(frozen=True)
class Take:
    """Server to client: the model as it is now."""

    weights: Params


@dataclass(frozen=True)
class Taken:
    """Client to server."""

    examples: Tensor


def start(weights: Params, cfg: Config) -> State:
    return State(weights, latest=weights)


def check(cfg: Config, home: Local) -> None:
    need_rows(home, "serveralone trains on them")


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    model, recipe = fleet.home.model, replace(cfg.recipe, epochs=1)
    rows = divided(fleet.home.data, keys.key(cfg.seed, "server rows"), cfg.server.validate_share)
    tuner = Tuner(fleet, rows, batch=recipe.batch, seed=cfg.seed, macs_per_second=cfg.server_macs_per_second)
    while True:
        tuner.begin(state.round)
        latest, best, score = state.latest, state.weights, state.score
        epochs = cfg.recipe.epochs + (cfg.server.pretrain_epochs if state.round == 0 else 0)
        tuner.spend(f"training, {epochs} epochs", epochs, latest)
        for epoch in range(epochs):
            key = keys.key(cfg.seed, state.round, epoch, "serveralone")
            latest = fit(model, latest, rows.tune, recipe, key=key)
            found = accuracy(model, latest, rows.valid)
            if found >= score:
                best, score = latest, found
        fleet.gather({client: Take(best) for client in sample(fleet, cfg.cohort, cfg.seed, state.round)})
        state = State(best, latest, score, state.round + 1)
        yield state


def take(task: Take, local: Local) -> Done:
    return Done(Taken(local.data.weight.sum()), mine=Mine(task.weights))


RELEASES = {Taken: Release(counts=("examples",))}
PROGRAMS = {Take: take}
HEADLINE = "received"


def shared(state: State) -> Params:
    return state.weights


def improves(cfg: Config) -> bool:
    return False  # it trains on the server rows itself
