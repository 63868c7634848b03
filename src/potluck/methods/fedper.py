"""FedPer: clients share all layers but the last ones, which stay on the client.

Arivazhagan et al., "Federated Learning with Personalization Layers", 2019, Algorithms 1 and 2. `layers` is K_P, the
number of personalisation layers. Deviation: personal layers start equal on all clients, as the shared ones do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from potluck.fleet import ClientId, Done, Fleet, Local, Params
from potluck.learn import Recipe, fit
from potluck.methods.fedavg import State, Train, Trained, averaged, start
from potluck.methods.parts import checks, layers
from potluck.methods.parts.merge import MEAN, Merge
from potluck.release import Release
from potluck.spaces import Choice, Range, Space

__all__ = ["PROGRAMS", "Config", "Mine", "State", "Train", "Trained", "personal", "private", "server", "start", "train"]


@dataclass(frozen=True)
class Config:
    layers: int = 1  # K_P, personal layers, counted from the output
    recipe: Recipe = Recipe(epochs=2)
    cohort: int = 0  # clients per round; 0: all
    merge: Merge = MEAN  # how the server combines models
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        checks.at_least(self, "layers", 1)


SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True), "layers": Choice(1, 2)}


@dataclass(frozen=True)
class Mine:
    weights: Params  # the client's whole model; its personal layers never leave it


def private(weights: Params, cfg: Config) -> Mine:
    return Mine(weights)


def check(cfg: Config, home: Local) -> None:
    layers.check(home, cfg.layers)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    head = fleet.home.model.last_layers(cfg.layers)  # W_P
    while True:
        base = layers.without(state.weights, head)  # W_B
        base = averaged(fleet, Train(base, cfg.recipe), base, cfg.cohort, cfg.seed, state.round, merge=cfg.merge)
        state = State(base, state.round + 1)
        yield state


def train(task: Train, local: Local) -> Done:
    """Algorithm 2: train the own layers and the received ones together, send back what was received."""
    whole = fit(local.model, {**local.mine.weights, **task.weights}, local.data, task.recipe, key=local.key)
    update = Trained({name: whole[name] for name in task.weights}, local.data.weight.sum())
    return Done(update, mine=Mine(whole), own=whole)


RELEASES = {Trained: Release(models=("weights",), weight="examples", by_fit=True)}
PROGRAMS = {Train: train}


VISIBLE = ("weights",)  # the averaged part; the rest is the client's own


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    return {**mine.weights, **state.weights}
