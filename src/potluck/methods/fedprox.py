"""FedProx: FedAvg whose clients stay near the model they received, so that unlike data pull them apart less.

Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, Algorithm 2 and equation (2):
client k minimises h_k(w) = F_k(w) + mu/2 ||w - w_t||². Deviation: the paper's inexactness (gamma) is set through
`recipe.epochs`, the same for all clients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from potluck.fleet import Done, Fleet, Local, Params
from potluck.learn import Recipe, fit
from potluck.methods.fedavg import State, Trained, averaged, shared, start
from potluck.methods.parts import checks
from potluck.methods.parts.correction import prox
from potluck.methods.parts.merge import MEAN, Merge
from potluck.release import Release
from potluck.spaces import Range, Space

__all__ = ["PROGRAMS", "Config", "State", "Train", "Trained", "server", "shared", "start", "train"]


@dataclass(frozen=True)
class Config:
    mu: float = 0.01  # weight of the proximal term
    recipe: Recipe = Recipe(epochs=2)
    cohort: int = 0  # clients per round; 0: all
    merge: Merge = MEAN  # how the server combines models
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        checks.at_least(self, "mu", 0.0)


SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True), "mu": Range(1e-4, 1.0, log=True)}


@dataclass(frozen=True)
class Train:
    """Server to client."""

    weights: Params
    mu: float
    recipe: Recipe


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        task = Train(state.weights, cfg.mu, cfg.recipe)
        weights = averaged(fleet, task, state.weights, cfg.cohort, cfg.seed, state.round, merge=cfg.merge)
        state = State(weights, state.round + 1)
        yield state


def train(task: Train, local: Local) -> Done:
    pull = prox(task.mu, task.weights)  # eq. (2)
    weights = fit(local.model, task.weights, local.data, task.recipe, key=local.key, pull=pull)
    return Done(Trained(weights, local.data.weight.sum()), own=weights)


RELEASES = {Trained: Release(models=("weights",), weight="examples", by_fit=True)}
PROGRAMS = {Train: train}
