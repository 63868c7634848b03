"""FedYogi: FedAvg whose server takes an adaptive step along the mean change of its clients.

Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Algorithm 2 (FEDYOGI). Deviation: none. The mean change is
weighted by the numbers of samples, as in the paper's experiments. Buffers are averaged plainly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from potluck.fleet import Fleet, Params
from potluck.learn import Recipe
from potluck.methods.fedavg import Train, Trained, averaged, train
from potluck.methods.parts import checks
from potluck.spaces import Range, Space
from potluck.tensors import each, zeros_like

__all__ = ["PROGRAMS", "Config", "State", "Train", "Trained", "server", "shared", "start", "train"]


@dataclass(frozen=True)
class Config:
    server_lr: float = 0.01  # eta
    recipe: Recipe = Recipe(epochs=2)  # lr is eta_l
    beta1: float = 0.9  # memory of the mean change
    beta2: float = 0.99  # memory of its square
    tau: float = 1e-3  # adaptivity
    cohort: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        checks.above(self, "server_lr", 0.0)
        checks.above(self, "tau", 0.0)


SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True), "server_lr": Range(1e-3, 0.1, log=True)}


@dataclass(frozen=True)
class State:
    weights: Params  # x
    first: Params  # m
    second: Params  # v, starts at tau²
    round: int = 0


def start(weights: Params, cfg: Config) -> State:
    return State(weights, zeros_like(weights), each(lambda w: torch.full_like(w, cfg.tau**2), weights))


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        task = Train(state.weights, cfg.recipe)
        average = averaged(fleet, task, state.weights, cfg.cohort, cfg.seed, state.round)
        state = step(state, average, cfg)
        yield state


def step(state: State, average: Params, cfg: Config) -> State:
    """Algorithm 2, lines 9 to 13, with delta = mean of the clients' models less the server's."""
    weights, first, second = {}, {}, {}
    for name, x in state.weights.items():
        if not x.is_floating_point():
            weights[name], first[name], second[name] = average[name], state.first[name], state.second[name]
            continue
        delta = average[name] - x
        m = cfg.beta1 * state.first[name] + (1.0 - cfg.beta1) * delta
        squared = delta * delta
        v = state.second[name] - (1.0 - cfg.beta2) * squared * torch.sign(state.second[name] - squared)
        weights[name] = x + cfg.server_lr * m / (torch.sqrt(v) + cfg.tau)
        first[name], second[name] = m, v
    return State(weights, first, second, state.round + 1)


PROGRAMS = {Train: train}


def shared(state: State) -> Params:
    return state.weights
