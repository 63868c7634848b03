"""Hermes: each client prunes the channels it needs least; each weight is the mean over the clients that hold it.

Li et al., "Hermes: An Efficient Federated Learning Framework for Heterogeneous Mobile Clients", MobiCom 2021. A client
trains with a group lasso. Whenever its model is accurate enough (`steps.accuracy`), it prunes a share of its channels
(`steps.share`), those whose weights became smallest, until it has the width it was dealt. Only its channels travel.
Weights that several clients hold are averaged; a weight that one client alone holds stays that client's. Deviation: the
width to end at is dealt, so that clients are compared at the same cost. `steps.share = 1` prunes to it at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from potluck.fleet import ClientId, Data, Done, Fleet, Local, Params
from potluck.learn import Recipe, fit, mean_loss
from potluck.methods.parts import checks
from potluck.methods.parts.cohort import sample
from potluck.methods.parts.submodels.figures import record
from potluck.methods.parts.submodels.fitting import FITTED, Slices
from potluck.methods.parts.submodels.pruning import (
    Channels,
    Found,
    Search,
    Steps,
    found,
    held,
    received,
    rights,
    searched,
    task_for,
)
from potluck.methods.parts.submodels.train import Mine, Train, Trained, personal, private, train
from potluck.methods.parts.submodels.widths import Plan, channel_squares, check, merged, plan_of
from potluck.spaces import Range, Space

__all__ = ["Found", "Mine", "Recipe", "Trained", "check", "personal", "private", "received", "record"]  # of the parts
KEY_SETTINGS = ("sizes.widths", "sizes.shares", "recipe.lr", "penalty")
NEEDS = FITTED


@dataclass(frozen=True)
class Config(Slices):  # sizes, recipe, cohort, seed
    penalty: float = 1e-3  # of the group lasso, on the norms of channels
    steps: Steps = Steps()

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.at_least(self, "penalty", 0.0)


SPACE: Space = {"recipe.lr": Range(1e-4, 1e-2, log=True), "penalty": Range(1e-5, 1e-2, log=True)}


@dataclass(frozen=True)
class State:
    weights: Params
    round: int = 0
    kept: dict[ClientId, Channels] = field(default_factory=dict)  # the channels of each client that has answered
    known: dict[ClientId, float] = field(default_factory=dict)  # and its width
    right: dict[ClientId, float] = field(default_factory=dict)  # what the last model of those that prune got right
    plan: Plan | None = None  # how the model is cut, once the server has begun
    scaled: bool = False  # what is sent is scaled (TailorFL)


def start(weights: Params, cfg: Config) -> State:
    return State(weights)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    plan = plan_of(fleet.home.model)
    width_of = cfg.sizes.fitted(fleet, state.weights, cfg.recipe, cfg.seed)
    while True:
        tasks = {
            client: task_for(state, client, plan, width_of[client], cfg.steps, cfg.penalty, cfg.recipe)
            for client in sample(fleet, cfg.cohort, cfg.seed, state.round)
        }
        arrivals = fleet.gather(tasks)
        right = state.right | rights(arrivals)
        kept = state.kept | searched(arrivals, plan, state.kept)
        weights = merged(state.weights, plan, held(arrivals, kept))
        state = State(weights, state.round + 1, kept, {client: width_of[client] for client in kept}, right, plan)
        yield state


def search(task: Search, local: Local) -> Done:
    """Train with the group lasso, then keep the channels with the largest norms."""
    plan = plan_of(local.model)

    def loss(weights: Params, batch: Data, key: Tensor) -> tuple[Tensor, Params]:
        value, buffers = mean_loss(local.model, weights, batch, key)
        if plan.groups:
            norms = [(squares + 1e-12).sqrt().sum() for squares in channel_squares(weights, plan).values()]
            value = value + task.penalty * torch.stack(norms).sum()
        return value, buffers

    weights = fit(local.model, task.weights, local.data, task.recipe, key=local.key, loss=loss)
    return found(weights, channel_squares(weights, plan), plan, task, local)


RELEASES = "each client prunes channels of its own"
PROGRAMS = {Search: search, Train: train}
HEADLINE = "own"


def shared(state: State) -> Params:
    return state.weights
