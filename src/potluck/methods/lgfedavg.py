"""LG-FedAvg: the first layers are a client's own representation; only the last layers are shared.

Liang et al., "Think Locally, Act Globally: Federated Learning with Local and Global Representations", 2020,
Algorithm 1. Deviation: none. It is FedPer the other way round, and a client trains in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from potluck.fleet import Fleet, Local, Params
from potluck.learn import Recipe
from potluck.methods.fedavg import State, Train, Trained, averaged, start
from potluck.methods.fedper import Mine, personal, train
from potluck.methods.parts import checks, layers
from potluck.methods.parts.merge import MEAN, Merge
from potluck.release import Release
from potluck.spaces import Choice, Range, Space

__all__ = ["PROGRAMS", "Config", "Mine", "State", "Train", "Trained", "personal", "private", "server", "start", "train"]


@dataclass(frozen=True)
class Config:
    layers: int = 1  # shared layers, counted from the output: theta^g
    recipe: Recipe = Recipe(epochs=2)
    cohort: int = 0  # clients per round; 0: all
    merge: Merge = MEAN  # how the server combines models
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        checks.at_least(self, "layers", 1)


SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True), "layers": Choice(1, 2)}


def private(weights: Params, cfg: Config) -> Mine:
    return Mine(weights)


def check(cfg: Config, home: Local) -> None:
    layers.check(home, cfg.layers)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    head = fleet.home.model.last_layers(cfg.layers)
    while True:
        common = layers.only(state.weights, head)
        common = averaged(fleet, Train(common, cfg.recipe), common, cfg.cohort, cfg.seed, state.round, merge=cfg.merge)
        state = State(common, state.round + 1)
        yield state


RELEASES = {Trained: Release(models=("weights",), weight="examples", by_fit=True)}
PROGRAMS = {Train: train}
VISIBLE = ("weights",)  # the averaged part; the rest is the client's own
