"""HeteroFL: each client trains the leading channels of the global model, and each weight is averaged over its holders.

Diao et al., "HeteroFL: Computation and Communication Efficient Federated Learning for Heterogeneous Clients", ICLR
2021, Algorithm 1, equations (1) to (3). `masked` is their masked cross-entropy: classes a client does not have are left
out of its softmax. Deviation: no scaler module; sub-models are trained by Adam, whose steps do not depend on the scale.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from potluck.fleet import ClientId, Data, Done, Fleet, Local, Params
from potluck.learn import Recipe
from potluck.methods.parts.cohort import sample
from potluck.methods.parts.submodels.train import Dealt, Mine, Train, Trained, train, trained
from potluck.methods.parts.submodels.widths import cut, dealt, leading, merged, plan_of

__all__ = [
    "PROGRAMS",
    "Config",
    "Masked",
    "Mine",
    "Recipe",
    "State",
    "Train",
    "Trained",
    "personal",
    "record",
    "server",
    "shared",
    "start",
]


@dataclass(frozen=True)
class Config(Dealt):  # widths, shares and the clients' training as in FedConv
    masked: bool = False  # leave the classes a client does not have out of its softmax


@dataclass(frozen=True)
class State:
    weights: Params
    round: int = 0
    known: dict[ClientId, float] = field(default_factory=dict)  # who has answered, and its width


@dataclass(frozen=True)
class Masked(Train):
    """Server to client: train with the classes you have only."""


def start(weights: Params, cfg: Config) -> State:
    return State(weights)


def private(weights: Params, cfg: Config) -> Mine:
    return Mine({})


def check(cfg: Config, home: Local) -> None:
    plan_of(home.model)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    plan = plan_of(fleet.home.model)
    width_of = dealt(fleet.clients, cfg.widths, cfg.shares, cfg.seed)
    kind = Masked if cfg.masked else Train
    while True:
        # eq. (1): W_l^p = W_g[:d_p, :k_p]
        part = {width: leading(plan, width) for width in cfg.widths}
        task = {width: kind(cut(state.weights, plan, part[width]), cfg.recipe) for width in cfg.widths}
        chosen = sample(fleet, cfg.cohort, cfg.seed, state.round)
        arrivals = fleet.gather({client: task[width_of[client]] for client in chosen})
        # eq. (2) and (3): the mean over those who hold an entry
        weights = merged(state.weights, plan, [(a.update.weights, part[width_of[a.client]], 1.0) for a in arrivals])
        state = State(weights, state.round + 1, state.known | {a.client: width_of[a.client] for a in arrivals})
        yield state


def train_masked(task: Masked, local: Local) -> Done:
    present = (F.one_hot(local.data.y, local.model.classes) * local.data.weight[:, None]).sum(0) > 0

    def loss(weights: Params, batch: Data, key: Tensor) -> tuple[Tensor, Params]:
        logits, buffers = local.model.train_logits(weights, batch.x, weight=batch.weight, key=key)
        logits = torch.where(present, logits, torch.full_like(logits, -1e9))
        losses = local.model.losses(logits, batch.y) * batch.weight
        return losses.sum() / batch.weight.sum().clamp_min(1.0), buffers

    weights = trained(task, local, loss)
    return Done(Trained(weights, local.data.weight.sum()), mine=Mine(weights))


PROGRAMS = {Train: train, Masked: train_masked}


def shared(state: State) -> Params:
    return state.weights


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    return mine.weights or state.weights


def record(state: State) -> dict[str, Any]:
    return {"widths": state.known}
