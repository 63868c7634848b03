"""Sub-models by structured pruning: a client looks for the channels that matter to it once, then trains only those.

What Hermes and TailorFL share: the search takes the whole model to the client, the answer is a sub-model and the
channels it consists of; from then on only those travel, and each weight is averaged over those who hold it. They differ
in how a client scores its channels (`search`), which is in their own files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from potluck.fleet import ClientId, Done, Fleet, Local, Params
from potluck.learn import Recipe
from potluck.methods.parts import checks
from potluck.methods.parts.cohort import sample
from potluck.methods.parts.submodels.train import Dealt, Mine, Train
from potluck.methods.parts.submodels.widths import Plan, cut, dealt, kept, merged, plan_of


@dataclass(frozen=True)
class Config(Dealt):
    penalty: float = 1e-3  # on the channels' norms (Hermes) or gates (TailorFL) while searching

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.at_least(self, "penalty", 0.0)


@dataclass(frozen=True)
class State:
    weights: Params
    round: int = 0
    kept: dict[ClientId, dict[str, Tensor]] = field(default_factory=dict)  # the channels of who has searched
    known: dict[ClientId, float] = field(default_factory=dict)  # and its width


@dataclass(frozen=True)
class Search:
    """Server to client, once: the whole model, and how wide yours may be."""

    weights: Params
    ratio: float
    penalty: float
    recipe: Recipe


@dataclass(frozen=True)
class Found:
    """Client to server: the channels that matter here, and their weights."""

    weights: Params
    kept: dict[str, Tensor]
    examples: Tensor


def found(weights: Params, scores: Mapping[str, Tensor], plan: Plan, ratio: float, local: Local) -> Done:
    """The best channels of every group by these scores."""
    best = {
        group: scores[group].topk(kept(channels, ratio)).indices.sort().values
        for group, channels in plan.groups.items()
    }
    sub = cut(weights, plan, best)
    return Done(Found(sub, best, local.data.weight.sum()), mine=Mine(sub))


def start(weights: Params, cfg: Config) -> State:
    return State(weights)


def private(weights: Params, cfg: Config) -> Mine:
    return Mine({})


def check(cfg: Config, home: Local) -> None:
    plan_of(home.model)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    """In every round newcomers search, everybody else trains its channels, and every weight is averaged over its
    holders."""
    plan = plan_of(fleet.home.model)
    width_of = dealt(fleet.clients, cfg.widths, cfg.shares, cfg.seed)
    while True:
        search = {width: Search(state.weights, width, cfg.penalty, cfg.recipe) for width in cfg.widths}
        tasks: dict[ClientId, Search | Train] = {}
        for client in sample(fleet, cfg.cohort, cfg.seed, state.round):
            own = state.kept.get(client)
            tasks[client] = (
                search[width_of[client]] if own is None else Train(cut(state.weights, plan, own), cfg.recipe)
            )
        held, parts = dict(state.kept), []
        for arrival in fleet.gather(tasks):
            update = arrival.update
            if isinstance(update, Found):
                held[arrival.client] = _allowed(update.kept, plan)
            parts.append((update.weights, held[arrival.client], update.examples))
        known = {client: width_of[client] for client in held}
        state = State(merged(state.weights, plan, parts), state.round + 1, held, known)
        yield state


def shared(state: State) -> Params:
    return state.weights


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    return mine.weights or state.weights


def record(state: State) -> dict[str, Any]:
    return {"widths": state.known}


def _allowed(indices: Mapping[str, Tensor], plan: Plan) -> dict[str, Tensor]:
    """Channels that exist: the gate checks shapes, not what numbers mean."""
    return {group: index.clamp(0, plan.groups[group] - 1) for group, index in indices.items()}


def gated(weights: Params, plan: Plan, gates: Mapping[str, Tensor]) -> Params:
    """Every channel's weights times its gate."""
    out = {}
    for name, value in weights.items():
        group = plan.axes[name][0].group
        if group is None or name.endswith(("running_mean", "running_var")):
            out[name] = value
        else:
            out[name] = value * gates[group].reshape(-1, *(1,) * (value.dim() - 1))
    return out


def lengths(squares: Mapping[str, Tensor]) -> Tensor:
    """The sum of the channels' norms: the group lasso."""
    return torch.stack([(square + 1e-12).sqrt().sum() for square in squares.values()]).sum()
