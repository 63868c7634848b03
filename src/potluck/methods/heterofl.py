"""HeteroFL: clients train the leading channels of the global model; the server averages each weight over its clients.

Diao et al., "HeteroFL: Computation and Communication Efficient Federated Learning for Heterogeneous Clients", ICLR
2021, Algorithm 1, equations (1) to (3). `masked` is their masked cross-entropy: a client leaves the classes it does not
have out of its softmax. Deviation: no scaler module, because Adam's steps do not depend on the scale of a sub-model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from potluck.fleet import ClientId, Data, Done, Fleet, Local, Params
from potluck.learn import Recipe
from potluck.methods.parts.cohort import sample
from potluck.methods.parts.submodels.figures import record
from potluck.methods.parts.submodels.fitting import FITTED, Slices
from potluck.methods.parts.submodels.train import (
    Given,
    Mine,
    Train,
    Trained,
    personal,
    private,
    received,
    train,
    trained,
)
from potluck.methods.parts.submodels.widths import check, cut, leading, merged, plan_of
from potluck.release import Release
from potluck.spaces import Choice, Range, Space

__all__ = ["Mine", "Recipe", "Trained", "check", "personal", "private", "received", "record"]  # of the parts
KEY_SETTINGS = ("sizes.widths", "sizes.shares", "recipe.lr", "masked")
NEEDS = FITTED


@dataclass(frozen=True)
class Config(Slices):  # sizes, recipe, cohort, seed
    masked: bool = False  # leave the classes that a client does not have out of its softmax


SPACE: Space = {"recipe.lr": Range(1e-4, 1e-2, log=True), "masked": Choice(False, True)}


@dataclass(frozen=True)
class State:
    weights: Params
    round: int = 0
    known: dict[ClientId, float] = field(default_factory=dict)  # clients that have answered, and their widths
    given: Given = field(default_factory=Given)


@dataclass(frozen=True)
class Masked(Train):
    """Server to client: train with the classes that the client has, only."""


def start(weights: Params, cfg: Config) -> State:
    return State(weights)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    plan = plan_of(fleet.home.model)
    width_of = cfg.sizes.fitted(fleet, state.weights, cfg.recipe, cfg.seed)
    task = Masked if cfg.masked else Train
    part = {width: leading(plan, width) for width in cfg.sizes.widths}

    def given(weights: Params) -> Given:
        """eq. (1): W_l^p = W_g[:d_p, :k_p]"""
        return Given(dict(width_of), {str(width): cut(weights, plan, own) for width, own in part.items()})

    state = replace(state, given=given(state.weights))
    while True:
        tasks = {width: task(state.given.models[str(width)], cfg.recipe) for width in part}
        chosen = sample(fleet, cfg.cohort, cfg.seed, state.round)
        arrivals = fleet.gather({client: tasks[width_of[client]] for client in chosen})
        # eq. (2) and (3): the mean over the clients that hold an entry
        weights = merged(state.weights, plan, [(a.update.weights, part[width_of[a.client]], 1.0) for a in arrivals])
        known = state.known | {a.client: width_of[a.client] for a in arrivals}
        state = State(weights, state.round + 1, known, given(weights))
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


def classes_for(cfg: Config) -> str:
    return "method.masked leaves classes out of a client's softmax" if cfg.masked else ""


RELEASES = {Trained: Release(models=("weights",), counts=("examples",))}  # a sum for each width
PROGRAMS = {Train: train, Masked: train_masked}
HEADLINE = "own"


def shared(state: State) -> Params:
    return state.weights
