"""SCAFFOLD: control variates that correct each client's drift away from what the others learn.

Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020, Algorithm 1 with
option II for the client's control variate (line 12) and global step size eta_g (line 16).
Deviations: models are averaged with equal weights as printed; `weighted` uses the numbers of examples instead.
Buffers (batch statistics) have no gradient and so no control variate: they are averaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.fleet import ClientId, Done, Fleet, Local, Params
from potluck.learn import Pull, sgd
from potluck.methods.parts import checks
from potluck.methods.parts.cohort import sample
from potluck.tensors import each, mean, zeros_like


@dataclass(frozen=True)
class Config:
    cohort: int = 0  # |S|, clients asked per round; 0 asks everybody
    epochs: int = 2
    batch: int = 32
    lr: float = 0.05  # eta_l
    global_lr: float = 1.0  # eta_g
    weighted: bool = False  # average by examples instead of equally
    seed: int = 0

    def __post_init__(self) -> None:
        checks.local_training(self)
        checks.above(self, "global_lr", 0.0)


@dataclass(frozen=True)
class State:
    weights: Params  # x
    control: Params  # c
    round: int = 0


@dataclass(frozen=True)
class Mine:
    control: Params  # c_i, stays on the client


@dataclass(frozen=True)
class Train:
    """Server to client."""

    weights: Params
    control: Params
    epochs: int
    batch: int
    lr: float


@dataclass(frozen=True)
class Trained:
    """Client to server: what changed."""

    weights: Params  # delta y_i = y_i - x
    control: Params  # delta c_i
    examples: Tensor


def start(weights: Params, cfg: Config) -> State:
    return State(weights, zeros_like(weights))


def private(weights: Params, cfg: Config) -> Mine:
    return Mine(zeros_like(weights))


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        task = Train(state.weights, state.control, cfg.epochs, cfg.batch, cfg.lr)
        chosen = sample(fleet, cfg.cohort, cfg.seed, state.round)
        updates = [arrival.update for arrival in fleet.gather({client: task for client in chosen})]
        weights, control = state.weights, state.control
        if updates:
            share = [u.examples for u in updates] if cfg.weighted else None
            step = mean([u.weights for u in updates], share)
            drift = mean([u.control for u in updates])
            weights = _moved(weights, step, cfg.global_lr)  # line 16
            control = _moved(control, drift, len(updates) / len(fleet.clients))  # line 17: |S|/N
        state = State(weights, control, state.round + 1)
        yield state


def _moved(value: Params, change: Params, share: float) -> Params:
    return each(lambda v, d: v + share * d if v.is_floating_point() else v, value, change)


def train(task: Train, local: Local) -> Done:
    mine: Mine = local.mine
    # line 10: y <- y - eta_l (g(y) - c_i + c)
    correction = Pull(0.0, each(lambda c, ci: c - ci, task.control, mine.control))
    weights = sgd(
        local.model, task.weights, local.data, pull=correction,
        key=local.key, lr=task.lr, epochs=task.epochs, batch=task.batch,
    )  # fmt: skip
    # line 12, option II: c_i+ = c_i - c + (x - y) / (K eta_l), K the local steps this client really took.
    own = local.data.weight.sum()
    steps = (task.epochs * torch.ceil(own / task.batch)).clamp_min(1.0)
    control = {
        name: mine.control[name] - task.control[name] + (task.weights[name] - weights[name]) / (steps * task.lr)
        if name in local.model.trainable
        else mine.control[name]
        for name in weights
    }
    change = each(lambda new, old: new - old, weights, task.weights)
    return Done(Trained(change, each(lambda new, old: new - old, control, mine.control), own), mine=Mine(control))


PROGRAMS = {Train: train}


def shared(state: State) -> Params:
    return state.weights


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    return state.weights
