"""FedAdam: FedAvg whose server takes Adam's step along the mean change of its clients.

Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Algorithm 2 (FEDADAM). The step is in
`parts/server_step.py`. Deviation: none. The mean change is weighted by the numbers of samples, as in the
paper's experiments. Buffers are averaged plainly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from potluck.fleet import Fleet, Params
from potluck.methods.fedavg import Train, Trained, averaged, train
from potluck.methods.parts.server_step import SPACE, Adaptive, Second, State, begin, moved, shared
from potluck.release import Release

__all__ = ["PROGRAMS", "RELEASES", "SPACE", "Config", "State", "Train", "Trained", "server", "shared", "start", "train"]


@dataclass(frozen=True)
class Config(Adaptive):  # server_lr, recipe, beta1, beta2, tau, cohort, seed
    pass


def start(weights: Params, cfg: Config) -> State:
    return begin(weights, cfg)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    yield from adaptive(fleet, state, cfg, second)


def adaptive(fleet: Fleet, state: State, cfg: Config, second: Second) -> Iterator[State]:
    """Algorithm 2 with its line 12 as a function: FedAdagrad and FedYogi differ from FedAdam in it alone."""
    while True:
        task = Train(state.weights, cfg.recipe)
        average = averaged(fleet, task, state.weights, cfg.cohort, cfg.seed, state.round, merge=cfg.merge)
        state = moved(state, average, cfg, second, fleet.home.model.trainable)
        yield state


def second(v: Tensor, squared: Tensor, beta2: float) -> Tensor:
    """The FedAdam line of Algorithm 2."""
    return beta2 * v + (1.0 - beta2) * squared


RELEASES = {Trained: Release(models=("weights",), weight="examples", by_fit=True)}
PROGRAMS = {Train: train}
