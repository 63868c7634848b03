"""FedAsync: the server mixes each arriving model into the global one at once; stale models count less.

Xie et al., "Asynchronous Federated Optimization", 2019, Algorithm 1 with the staleness functions of section 5.2,
polynomial by default. EchoPFL calls it FedAsyn. Deviation: all clients train all the time, where the paper's scheduler
triggers clients at random. `round` counts as many updates as there are clients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from potluck.fleet import Arrival, Done, Fleet, Local, Params
from potluck.learn import Recipe, fit
from potluck.methods.parts import checks
from potluck.methods.parts.correction import prox
from potluck.methods.parts.staleness import hinge, polynomial
from potluck.release import Release
from potluck.spaces import Choice, Range, Space
from potluck.tensors import mix, whole


@dataclass(frozen=True)
class Config:
    alpha: float = 0.6  # how much a fresh model counts
    staleness: str = "polynomial"  # constant | polynomial | hinge: how an update's weight falls with its age
    power: float = 0.5  # a: (age + 1)^-a, or 1 / (a (age - b) + 1) of the hinge
    grace: int = 4  # b: the age up to which the hinge counts an update in full
    rho: float = 0.0  # pulls local training to the model it began from
    recipe: Recipe = Recipe(epochs=2)
    seed: int = 0

    def __post_init__(self) -> None:
        checks.within(self, "alpha", 0.0, 1.0)
        checks.one_of(self, "staleness", ("constant", "polynomial", "hinge"))
        checks.at_least(self, "power", 0.0)
        checks.at_least(self, "grace", 0)
        checks.at_least(self, "rho", 0.0)


SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True), "alpha": Choice(0.3, 0.6, 0.9)}


@dataclass(frozen=True)
class State:
    weights: Params  # x_t
    version: int = 0  # t
    round: int = 0
    staleness: tuple[int, int] = (0, 0)  # summed over all merges, and the largest


@dataclass(frozen=True)
class Train:
    """Server to client."""

    weights: Params
    version: Tensor  # tau
    recipe: Recipe
    rho: float


@dataclass(frozen=True)
class Trained:
    """Client to server."""

    weights: Params
    version: Tensor
    examples: Tensor


def start(weights: Params, cfg: Config) -> State:
    return State(weights)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        for client in fleet.idle:
            version = whole(state.version)
            task = Train(state.weights, version, cfg.recipe, cfg.rho)
            fleet.send(task, to=client)
        arrival = fleet.receive()
        if isinstance(arrival, Arrival):
            update: Trained = arrival.update
            age = state.version - int(update.version)  # t - tau, now
            alpha = cfg.alpha * weight(age, cfg)
            state = State(
                mix(state.weights, update.weights, alpha),  # x_t <- (1 - alpha_t) x_(t-1) + alpha_t x_new
                state.version + 1,
                (state.version + 1) // len(fleet.clients),
                (state.staleness[0] + age, max(state.staleness[1], age)),
            )
        yield state


def weight(age: int, cfg: Config) -> float:
    """s(t - tau): what an update of this age counts of what a fresh one does."""
    if cfg.staleness == "hinge":
        return hinge(age, cfg.power, cfg.grace)
    return polynomial(age, cfg.power) if cfg.staleness == "polynomial" else 1.0


def train(task: Train, local: Local) -> Done:
    pull = prox(task.rho, task.weights) if task.rho else None
    weights = fit(local.model, task.weights, local.data, task.recipe, key=local.key, pull=pull)
    return Done(Trained(weights, task.version, local.data.weight.sum()), own=weights)


RELEASES = {
    Trained: Release(
        ("weights",),
        counts=("examples",),
        open=("version",),
        single="it mixes in each model as it arrives",
        by_fit=True,
    )
}
PROGRAMS = {Train: train}


def shared(state: State) -> Params:
    return state.weights


def record(state: State) -> dict[str, Any]:
    merges = max(1, state.version)
    return {"staleness_mean": state.staleness[0] / merges, "staleness_max": state.staleness[1]}
