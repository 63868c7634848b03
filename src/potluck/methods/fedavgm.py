"""FedAvgM: FedAvg whose server keeps a momentum of the mean change.

Hsu et al., "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification", 2019,
section 4.3: v <- beta v + delta, w <- w + server_lr v, where delta is the mean of the clients' models less w.
Deviation: none. With beta = 0 and server_lr = 1 it is FedAvg. Buffers take the mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from potluck.fleet import Fleet, Params
from potluck.learn import Recipe
from potluck.methods.fedavg import Train, Trained, averaged, train
from potluck.methods.parts import checks
from potluck.methods.parts.merge import MEAN, Merge
from potluck.release import Release
from potluck.spaces import Choice, Range, Space
from potluck.tensors import zeros_like

__all__ = ["PROGRAMS", "Config", "State", "Train", "Trained", "server", "shared", "start", "train"]


@dataclass(frozen=True)
class Config:
    beta: float = 0.9  # momentum of the server
    server_lr: float = 1.0
    recipe: Recipe = Recipe(epochs=2)
    cohort: int = 0  # clients per round; 0: all
    merge: Merge = MEAN  # how the server combines models
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        checks.within(self, "beta", 0.0, 0.999)
        checks.above(self, "server_lr", 0.0)


SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True), "beta": Choice(0.5, 0.7, 0.9), "server_lr": Choice(0.3, 1.0)}


@dataclass(frozen=True)
class State:
    weights: Params
    velocity: Params  # v
    round: int = 0


def start(weights: Params, cfg: Config) -> State:
    return State(weights, zeros_like(weights))


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    trained = fleet.home.model.trainable
    while True:
        task = Train(state.weights, cfg.recipe)
        average = averaged(fleet, task, state.weights, cfg.cohort, cfg.seed, state.round, merge=cfg.merge)
        weights, velocity = dict(average), dict(state.velocity)
        for name, old in state.weights.items():
            if name in trained:
                velocity[name] = cfg.beta * state.velocity[name] + (average[name] - old)
                weights[name] = old + cfg.server_lr * velocity[name]
        state = State(weights, velocity, state.round + 1)
        yield state


RELEASES = {Trained: Release(models=("weights",), weight="examples", by_fit=True)}
PROGRAMS = {Train: train}


def shared(state: State) -> Params:
    return state.weights
