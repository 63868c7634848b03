"""FedProx: FedAvg whose clients are held near the model they were given, so that unlike data pull less far.

Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, Algorithm 2 and equation (2):
client k minimises h_k(w) = F_k(w) + mu/2 ||w - w_t||². Deviation: the paper's inexactness (gamma) is set through
`epochs`, the same for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from potluck.fleet import ClientId, Done, Fleet, Local, Params
from potluck.learn import Pull, sgd
from potluck.methods.fedavg import State, Trained, start
from potluck.methods.parts import checks
from potluck.methods.parts.merge import averaged
from potluck.tensors import each

__all__ = [
    "PROGRAMS",
    "Config",
    "State",
    "Train",
    "Trained",
    "personal",
    "server",
    "shared",
    "start",
    "train",
]


@dataclass(frozen=True)
class Config:
    mu: float = 0.01  # weight of the proximal term
    cohort: int = 0  # clients asked per round; 0 asks everybody
    epochs: int = 2
    batch: int = 32
    lr: float = 0.05
    momentum: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        checks.local_training(self)
        checks.at_least(self, "mu", 0.0)


@dataclass(frozen=True)
class Train:
    """Server to client."""

    weights: Params
    mu: float
    epochs: int
    batch: int
    lr: float
    momentum: float


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        task = Train(state.weights, cfg.mu, cfg.epochs, cfg.batch, cfg.lr, cfg.momentum)
        weights = averaged(fleet, task, state.weights, cfg.cohort, cfg.seed, state.round)
        state = State(weights, state.round + 1)
        yield state


def train(task: Train, local: Local) -> Done:
    # eq. (2): the gradient of mu/2 ||w - w_t||² is mu w - mu w_t.
    proximal = Pull(task.mu, each(lambda w: -task.mu * w, task.weights))
    weights = sgd(
        local.model, task.weights, local.data, pull=proximal,
        key=local.key, lr=task.lr, epochs=task.epochs, batch=task.batch, momentum=task.momentum,
    )  # fmt: skip
    return Done(Trained(weights, local.data.weight.sum()))


PROGRAMS = {Train: train}


def shared(state: State) -> Params:
    return state.weights


def personal(state: State, client: ClientId, mine: None) -> Params:
    return state.weights
