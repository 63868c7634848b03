"""FedYogi: FedAvg whose server takes Yogi's step along the mean change of its clients.

Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Algorithm 2 (FEDYOGI). Its line 12 is here, the other
lines are in `fedadam.py`. Deviation: none.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from potluck.fleet import Fleet
from potluck.methods.fedadam import PROGRAMS, RELEASES, SPACE, Config, State, Train, Trained, adaptive, shared, start

__all__ = [
    "PROGRAMS",
    "RELEASES",
    "SPACE",
    "Config",
    "State",
    "Train",
    "Trained",
    "shared",
    "start",
]  # with those of FedAdam


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    yield from adaptive(fleet, state, cfg, second)


def second(v: Tensor, squared: Tensor, beta2: float) -> Tensor:
    """The FedYogi line of Algorithm 2."""
    return v - (1.0 - beta2) * squared * torch.sign(v - squared)
