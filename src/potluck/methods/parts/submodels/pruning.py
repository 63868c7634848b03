"""Sub-models by structured pruning: a client looks for the channels that matter to it, and trains only those.

What Hermes and TailorFL have in common: the messages of the search, the choice of the best channels by a score, and
what the server takes from the answers. A client prunes step by step, whenever its model is accurate enough, until it
has the width it was dealt. How a client scores its channels is in the methods' own files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from potluck.fleet import Arrival, ClientId, Done, Local, Params
from potluck.learn import Recipe
from potluck.methods.parts import checks
from potluck.methods.parts.submodels.train import Mine, Train
from potluck.methods.parts.submodels.widths import Indices, Plan, cut, kept

Channels = dict[str, Tensor]  # group -> the channels a client holds


@dataclass(frozen=True)
class Steps:
    """When a client prunes, and how much."""

    share: float = 0.2  # of its channels, at a time; 1: all that it must, at once
    accuracy: float = 0.5  # that its last model reached on its validation rows, or else on its samples; 0: any
    after: int = 0  # rounds before anybody prunes

    def __post_init__(self) -> None:
        checks.share(self, "share")
        checks.at_least(self, "accuracy", 0.0)
        checks.at_least(self, "after", 0)


@dataclass(frozen=True)
class Search:
    """Server to client: its channels of the model so far, and how wide they may be in the end."""

    weights: Params
    ratio: float
    penalty: float
    recipe: Recipe
    share: float = 1.0  # of the channels that it has, to prune now


@dataclass(frozen=True)
class Found:
    """Client to server: which of its channels it keeps, and their weights."""

    weights: Params
    kept: Channels
    right: Tensor  # share of its rows that the model before pruning got right
    examples: Tensor


def task_for(state: Any, client: ClientId, plan: Plan, width: float, steps: Steps, penalty: float, recipe: Recipe,
    lifted: Callable[[Params, Indices], Params] = lambda sub, channels: sub,
) -> Search | Train:  # fmt: skip
    """Go on pruning until the width is reached; then train. `lifted` is what the server does to what it sends."""
    own: Channels = state.kept.get(client, whole(plan))
    sub = lifted(cut(state.weights, plan, own), own)
    if client in state.kept and all(len(own[group]) <= kept(n, width) for group, n in plan.groups.items()):
        return Train(sub, recipe)
    ready = state.right.get(client, 0.0) >= steps.accuracy and state.round >= steps.after
    return Search(sub, width, penalty, recipe, steps.share if ready else 0.0)


def whole(plan: Plan) -> Channels:
    return {group: torch.arange(n) for group, n in plan.groups.items()}


def counts_of(weights: Params, plan: Plan) -> dict[str, int]:
    """How many channels of each group a sub-model has."""
    return {
        axes[0].group: int(weights[name].shape[0])
        for name, axes in plan.axes.items()
        if axes[0].group is not None and name in weights
    }


def found(weights: Params, scores: Mapping[str, Tensor], plan: Plan, task: Search, local: Local) -> Done:
    """Answer a search with the channels of each group that have the highest scores."""
    model, has = local.model, counts_of(weights, plan)
    data = local.data if local.valid is None else local.valid
    right = model.task.closeness(model.logits(weights, data.x, t=data.t, length=data.length), data.y) * data.weight
    least = {group: kept(plan.groups[group], task.ratio) for group in has}
    fewer = {group: max(least[group], math.ceil((1.0 - task.share) * n)) for group, n in has.items()}
    best = {group: scores[group].topk(fewer[group]).indices.sort().values for group in has}
    sub = cut(weights, plan, best)
    share = right.sum() / data.weight.sum().clamp_min(1.0)
    return Done(Found(sub, best, share, local.data.weight.sum()), mine=Mine(sub))


def searched(arrivals: Iterable[Arrival], plan: Plan, before: Mapping[ClientId, Channels]) -> dict[ClientId, Channels]:
    """The channels that clients kept of theirs; numbers out of range are clamped: the gate checks only shapes."""
    found = {}
    for arrival in arrivals:
        if isinstance(arrival.update, Found):
            had = before.get(arrival.client, whole(plan))
            found[arrival.client] = {
                group: had[group][index.clamp(0, len(had[group]) - 1)] for group, index in arrival.update.kept.items()
            }
    return found


def rights(arrivals: Iterable[Arrival]) -> dict[ClientId, float]:
    """How accurate the clients that are still pruning found their models."""
    return {one.client: float(one.update.right) for one in arrivals if isinstance(one.update, Found)}


def received(state: Any, client: ClientId) -> Params:
    """The global model's weights of the client's channels; the whole model for a client that has not pruned."""
    if state.plan is None or client not in state.kept:
        return state.weights  # type: ignore[no-any-return]
    return cut(state.weights, state.plan, state.kept[client])


def held(arrivals: Iterable[Arrival], kept: Mapping[ClientId, Indices]) -> list[tuple[Params, Indices, Tensor]]:
    """What `widths.merged` takes: each update's weights, the channels they belong to, and the number of samples."""
    return [(arrival.update.weights, kept[arrival.client], arrival.update.examples) for arrival in arrivals]
