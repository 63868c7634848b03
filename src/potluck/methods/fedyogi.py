"""FedYogi: FedAvg whose server takes an adaptive step along the mean change of its clients.

Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Algorithm 2 (FEDYOGI). The step is in
`parts/server_step.py`. Deviation: none. The mean change is weighted by the numbers of samples, as in the
paper's experiments. Buffers are averaged plainly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.fleet import Fleet, Params
from potluck.methods.fedavg import Train, Trained, averaged, train
from potluck.methods.parts.server_step import SPACE, Adaptive, State, begin, moved, shared

__all__ = ["PROGRAMS", "SPACE", "Config", "State", "Train", "Trained", "server", "shared", "start", "train"]


@dataclass(frozen=True)
class Config(Adaptive):  # server_lr, recipe, beta1, beta2, tau, cohort, seed
    pass


def start(weights: Params, cfg: Config) -> State:
    return begin(weights, cfg)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        task = Train(state.weights, cfg.recipe)
        average = averaged(fleet, task, state.weights, cfg.cohort, cfg.seed, state.round)
        state = moved(state, average, cfg, second, fleet.home.model.trainable)
        yield state


def second(v: Tensor, squared: Tensor, beta2: float) -> Tensor:
    """The FedYogi line of Algorithm 2."""
    return v - (1.0 - beta2) * squared * torch.sign(v - squared)


PROGRAMS = {Train: train}
