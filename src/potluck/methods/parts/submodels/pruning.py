"""Sub-models by structured pruning: a client looks once for the channels that matter to it, then trains only those.

What Hermes and TailorFL have in common: the messages of the search, the choice of the best channels by a score, and
what the server takes from the answers. How a client scores its channels is in the methods' own files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from potluck.fleet import Arrival, ClientId, Done, Local, Params
from potluck.learn import Recipe
from potluck.methods.parts.submodels.train import Mine
from potluck.methods.parts.submodels.widths import Indices, Plan, cut, kept

Channels = dict[str, Tensor]  # group -> the channels a client holds


@dataclass(frozen=True)
class Search:
    """Server to client, once: the whole model, and how wide the client's own may be."""

    weights: Params
    ratio: float
    penalty: float
    recipe: Recipe


@dataclass(frozen=True)
class Found:
    """Client to server: the channels that matter to it, and their weights."""

    weights: Params
    kept: Channels
    examples: Tensor


def found(weights: Params, scores: Mapping[str, Tensor], plan: Plan, ratio: float, local: Local) -> Done:
    """Answer a search with the channels of each group that have the highest scores."""
    best = {
        group: scores[group].topk(kept(channels, ratio)).indices.sort().values
        for group, channels in plan.groups.items()
    }
    sub = cut(weights, plan, best)
    return Done(Found(sub, best, local.data.weight.sum()), mine=Mine(sub))


def searched(arrivals: Iterable[Arrival], plan: Plan) -> dict[ClientId, Channels]:
    """The channels that clients found; numbers out of range are clamped, because the gate checks only shapes."""
    return {
        arrival.client: {group: index.clamp(0, plan.groups[group] - 1) for group, index in arrival.update.kept.items()}
        for arrival in arrivals
        if isinstance(arrival.update, Found)
    }


def received(state: Any, client: ClientId) -> Params:
    """The global model's weights of the client's channels; the whole model for a client that has not pruned."""
    if state.plan is None or client not in state.kept:
        return state.weights  # type: ignore[no-any-return]
    return cut(state.weights, state.plan, state.kept[client])


def held(arrivals: Iterable[Arrival], kept: Mapping[ClientId, Indices]) -> list[tuple[Params, Indices, Tensor]]:
    """What `widths.merged` takes: each update's weights, the channels they belong to, and the number of samples."""
    return [(arrival.update.weights, kept[arrival.client], arrival.update.examples) for arrival in arrivals]
