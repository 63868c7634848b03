"""A server that treats the mean change of its clients as a gradient: momentum, Adagrad, Adam, Yogi.

Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Algorithm 2; Hsu et al., "Measuring the Effects of
Non-Identical Data Distribution for Federated Visual Classification", 2019 (momentum).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from potluck.fleet import Params
from potluck.learn import Recipe
from potluck.methods.parts import checks
from potluck.methods.parts.merge import MEAN, Merge
from potluck.spaces import Range, Space
from potluck.tensors import each, zeros_like

Second = Callable[[Tensor, Tensor, float], Tensor]  # (v, delta squared, beta2) -> the new v


@dataclass(frozen=True)
class Adaptive:
    """Settings of Algorithm 2."""

    server_lr: float = 0.01  # eta
    recipe: Recipe = Recipe(epochs=2)  # lr is eta_l
    beta1: float = 0.9  # memory of the mean change
    beta2: float = 0.99  # memory of its square
    tau: float = 1e-3  # adaptivity
    cohort: int = 0
    merge: Merge = MEAN  # how the server combines models
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


def begin(weights: Params, cfg: Adaptive) -> State:
    return State(weights, zeros_like(weights), each(lambda w: torch.full_like(w, cfg.tau**2), weights))


def moved(state: State, average: Params, cfg: Adaptive, second_of: Second, trained: Collection[str]) -> State:
    """Lines 9 to 13, with delta = mean of the clients' models less the server's.

    `trained` are the parameters. Buffers take the mean: a step could make a variance negative.
    """
    weights, first, second = {}, {}, {}
    for name, x in state.weights.items():
        if name not in trained:
            weights[name], first[name], second[name] = average[name], state.first[name], state.second[name]
            continue
        delta = average[name] - x
        m = cfg.beta1 * state.first[name] + (1.0 - cfg.beta1) * delta
        v = second_of(state.second[name], delta * delta, cfg.beta2)
        weights[name] = x + cfg.server_lr * m / (torch.sqrt(v) + cfg.tau)
        first[name], second[name] = m, v
    return State(weights, first, second, state.round + 1)


def shared(state: Any) -> Params:
    weights: Params = state.weights
    return weights
