"""Hermes: each client prunes the channels it needs least; each weight is the mean over the clients that hold it.

Li et al., "Hermes: An Efficient Federated Learning Framework for Heterogeneous Mobile Clients", MobiCom 2021. A client
trains the whole model once with a group lasso and prunes the channels whose weights became smallest. From then on only
its channels travel. Weights that several clients hold are averaged; a weight that one client alone holds stays that
client's. Deviation: a client prunes once, to the width it was dealt, instead of step by step to a validation accuracy,
so that it is compared at the same cost as the others.
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
from potluck.methods.parts.submodels.pruning import Channels, Found, Search, found, held, received, searched
from potluck.methods.parts.submodels.train import Mine, Train, Trained, personal, private, train
from potluck.methods.parts.submodels.widths import Plan, channel_squares, check, cut, merged, plan_of
from potluck.spaces import Range, Space

__all__ = ["Found", "Mine", "Recipe", "Trained", "check", "personal", "private", "received", "record"]  # of the parts
KEY_SETTINGS = ("sizes.widths", "sizes.shares", "recipe.lr", "penalty")
NEEDS = FITTED


@dataclass(frozen=True)
class Config(Slices):  # sizes, recipe, cohort, seed
    penalty: float = 1e-3  # of the group lasso, on the norms of channels

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.at_least(self, "penalty", 0.0)


SPACE: Space = {"recipe.lr": Range(1e-4, 1e-2, log=True), "penalty": Range(1e-5, 1e-2, log=True)}


@dataclass(frozen=True)
class State:
    weights: Params
    round: int = 0
    kept: dict[ClientId, Channels] = field(default_factory=dict)  # the channels of each client that has pruned
    known: dict[ClientId, float] = field(default_factory=dict)  # and its width
    plan: Plan | None = None  # how the model is cut, once the server has begun


def start(weights: Params, cfg: Config) -> State:
    return State(weights)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    plan = plan_of(fleet.home.model)
    width_of = cfg.sizes.fitted(fleet, state.weights, cfg.recipe, cfg.seed)
    while True:
        prune = {width: Search(state.weights, width, cfg.penalty, cfg.recipe) for width in cfg.sizes.widths}
        tasks: dict[ClientId, Search | Train] = {}
        for client in sample(fleet, cfg.cohort, cfg.seed, state.round):
            if client in state.kept:
                tasks[client] = Train(cut(state.weights, plan, state.kept[client]), cfg.recipe)
            else:
                tasks[client] = prune[width_of[client]]
        arrivals = fleet.gather(tasks)
        kept = state.kept | searched(arrivals, plan)
        weights = merged(state.weights, plan, held(arrivals, kept))
        state = State(weights, state.round + 1, kept, {client: width_of[client] for client in kept}, plan)
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
    return found(weights, channel_squares(weights, plan), plan, task.ratio, local)


RELEASES = "each client prunes channels of its own"
PROGRAMS = {Search: search, Train: train}
HEADLINE = "own"


def shared(state: State) -> Params:
    return state.weights
