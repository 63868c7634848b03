"""The first download: the common start of all clients, its pre-training, and the precision and depth of each client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch import Tensor

from potluck.fleet import ClientId, Done, Fleet, Local, Params
from potluck.methods.parts.cohort import ready
from potluck.methods.parts.fedcfc import depths, precision
from potluck.methods.parts.starts import pretrained, scattered

if TYPE_CHECKING:
    from potluck.methods.fedcfc import Config, State


@dataclass(frozen=True)
class Begin:
    """Server to client, once: the common start and the precision to store it in. `scatter` draws weights instead."""

    weights: Params
    precision: str
    depth: str
    scatter: bool
    rows: bool  # int8 weights have a scale for each row


@dataclass(frozen=True)
class Begun:
    """Client to server."""

    examples: Tensor


def needed(cfg: Config) -> bool:
    """Whether clients need a first download: they cannot draw their start from the seed."""
    return cfg.pretrain.epochs > 0 or not cfg.common_start or cfg.precisions != ("float32",) or bool(cfg.depths)


def prepared(fleet: Fleet, state: State, cfg: Config) -> State:
    """The common start, trained on the server rows; one for each depth."""
    starts = tuple(
        pretrained(fleet, weights, cfg.pretrain, cfg.recipe, cfg.seed, cfg.classes.first) for weights in state.starts
    )
    averaged = {name: starts[0][name] for name in state.weights}
    return replace(state, starts=starts, weights=averaged, ready=True)


def downloaded(fleet: Fleet, state: State, cfg: Config, index: Mapping[ClientId, int]) -> State:
    """Send their start to all idle clients that have none; clients that join late get it when they join."""
    new = index.keys() - state.begun.keys()
    tasks = {client: _begin(state, cfg, index[client]) for client in ready(fleet, fits=new.__contains__)}
    if not tasks:
        return state
    answered = {arrival.client: cfg.cluster(index[arrival.client]) for arrival in fleet.gather(tasks)}
    return replace(state, begun={**state.begun, **answered})


def _begin(state: State, cfg: Config, index: int) -> Begin:
    """Precisions and depths go to the clients in turn, by their index."""
    return Begin(
        state.starts[index % len(state.starts)] if cfg.common_start else {},
        cfg.precisions[index % len(cfg.precisions)],
        cfg.depths[index % len(cfg.depths)] if cfg.depths else "",
        not cfg.common_start,
        cfg.scales == "row",
    )


def begin(task: Begin, local: Local) -> Done:
    """Store the start at the client's precision."""
    weights = task.weights
    if task.scatter:
        weights = scattered(local.model, depths.shallower(local.mine.weights, task.depth), local.key)
    mine = replace(local.mine, weights=precision.stored(weights, task.precision, task.rows))
    return Done(Begun(local.data.weight.sum()), mine=mine)
