"""FedRep: clients learn one representation together, and each its own head on it.

Collins et al., "Exploiting Shared Representations for Personalized Federated Learning", ICML 2021, Algorithm 1. A
client first trains its head on the received representation (tau steps), then the representation on its new head, and
sends the representation. Deviation: tau is counted in epochs (`head_epochs`), as in the released code. The
representation has `recipe.epochs`, one in the paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from potluck import keys
from potluck.fleet import Done, Fleet, Local, Params
from potluck.learn import Recipe, fit
from potluck.methods.fedavg import State, Trained, averaged, start
from potluck.methods.fedper import Mine, personal
from potluck.methods.parts import checks, layers
from potluck.methods.parts.merge import MEAN, Merge
from potluck.release import Release
from potluck.spaces import Choice, Range, Space

__all__ = ["PROGRAMS", "Config", "Mine", "State", "Train", "Trained", "personal", "private", "server", "start", "train"]


@dataclass(frozen=True)
class Config:
    head_epochs: int = 10  # tau: epochs of the head, before the representation
    layers: int = 1  # of the head, counted from the output
    recipe: Recipe = Recipe(epochs=1)  # its epochs are of the representation
    cohort: int = 0  # clients per round; 0: all
    merge: Merge = MEAN  # how the server combines models
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        checks.at_least(self, "layers", 1)
        checks.at_least(self, "head_epochs", 1)


SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True), "head_epochs": Choice(1, 4, 10)}


@dataclass(frozen=True)
class Train:
    """Server to client."""

    weights: Params  # phi, the representation
    head_epochs: int
    recipe: Recipe


def private(weights: Params, cfg: Config) -> Mine:
    return Mine(weights)


def check(cfg: Config, home: Local) -> None:
    layers.check(home, cfg.layers)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    head = fleet.home.model.last_layers(cfg.layers)
    while True:
        body = layers.without(state.weights, head)
        task = Train(body, cfg.head_epochs, cfg.recipe)
        state = State(averaged(fleet, task, body, cfg.cohort, cfg.seed, state.round, merge=cfg.merge), state.round + 1)
        yield state


def train(task: Train, local: Local) -> Done:
    model, data = local.model, local.data
    whole: Params = {**local.mine.weights, **task.weights}
    body = frozenset(name for name in task.weights if name in model.trainable)
    first, second = replace(task.recipe, epochs=task.head_epochs), keys.fold(local.key, "representation")
    headed = fit(model, whole, data, first, key=local.key, only=model.trainable - body)
    # Batch statistics belong to the representation: those of its own training count.
    headed = {name: value if name in model.trainable else whole[name] for name, value in headed.items()}
    whole = fit(model, headed, data, task.recipe, key=second, only=body)
    update = Trained({name: whole[name] for name in task.weights}, data.weight.sum())
    return Done(update, mine=Mine(whole), own=whole)


RELEASES = {Trained: Release(models=("weights",), weight="examples")}
PROGRAMS = {Train: train}
VISIBLE = ("weights",)  # the averaged part; the rest is the client's own
