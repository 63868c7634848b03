"""FedBuff: a buffer collects the clients' changes, and each K of them make one step of the global model.

Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation", AISTATS 2022, Algorithm 1, with the
staleness weight 1/sqrt(1 + age) of section 5. Deviations: all clients train all the time; no secure aggregation.
`round` counts as many updates as there are clients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from potluck.fleet import Arrival, Done, Fleet, Local, Params
from potluck.learn import Recipe, fit
from potluck.methods.parts import checks
from potluck.methods.parts.staleness import polynomial
from potluck.release import Release
from potluck.spaces import Choice, Range, Space
from potluck.tensors import added, each, whole, zeros_like


@dataclass(frozen=True)
class Config:
    buffer: int = 10  # K
    global_lr: float = 1.0  # eta_g
    power: float = 0.5  # an update of some age counts (age + 1)^-power
    recipe: Recipe = Recipe(epochs=2)
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "buffer", 1)
        checks.at_least(self, "power", 0.0)
        checks.above(self, "global_lr", 0.0)


SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True), "buffer": Choice(5, 10, 20)}


@dataclass(frozen=True)
class State:
    weights: Params
    waiting: Params  # the sum in the buffer
    count: int = 0  # updates in the buffer
    version: int = 0  # steps of the global model
    arrivals: int = 0
    round: int = 0
    staleness: tuple[int, int] = (0, 0)  # summed over all updates, and the largest


@dataclass(frozen=True)
class Train:
    """Server to client."""

    weights: Params
    version: Tensor
    recipe: Recipe


@dataclass(frozen=True)
class Changed:
    """Client to server."""

    change: Params  # y - x
    version: Tensor
    examples: Tensor


def start(weights: Params, cfg: Config) -> State:
    return State(weights, zeros_like(weights))


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        for client in fleet.idle:
            task = Train(state.weights, whole(state.version), cfg.recipe)
            fleet.send(task, to=client)
        arrival = fleet.receive()
        if isinstance(arrival, Arrival):
            update: Changed = arrival.update
            age = state.version - int(update.version)
            share = polynomial(age, cfg.power)
            state = replace(
                state,
                waiting=added(state.waiting, update.change, share),
                count=state.count + 1,
                arrivals=state.arrivals + 1,
                round=(state.arrivals + 1) // len(fleet.clients),
                staleness=(state.staleness[0] + age, max(state.staleness[1], age)),
            )
            if state.count >= cfg.buffer:
                weights = added(state.weights, state.waiting, cfg.global_lr / state.count)
                state = replace(
                    state, weights=weights, waiting=zeros_like(weights), count=0, version=state.version + 1
                )  # fmt: skip
        yield state


def train(task: Train, local: Local) -> Done:
    weights = fit(local.model, task.weights, local.data, task.recipe, key=local.key)
    change = each(lambda new, old: new - old, weights, task.weights)
    return Done(Changed(change, task.version, local.data.weight.sum()), own=weights)


def releases(cfg: Config) -> dict[type, Release]:
    """A buffer is one sum, in which an old change counts less."""

    def share(state: State, update: Changed) -> float:
        return polynomial(state.version - int(update.version), cfg.power)

    known = Release(changes=("change",), counts=("examples",), open=("version",), by_fit=True)
    return {Changed: replace(known, share=share, together=cfg.buffer)}


PROGRAMS = {Train: train}


def shared(state: State) -> Params:
    return state.weights


def record(state: State) -> dict[str, Any]:
    merges = max(1, state.arrivals)
    return {"staleness_mean": state.staleness[0] / merges, "staleness_max": state.staleness[1]}
