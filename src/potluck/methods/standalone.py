"""Standalone: every client trains the widest model it was given, alone; nothing is exchanged but the first weights.

The baseline of FedConv (Shen et al., MobiSys 2024, section 5.3). `local` is the same with the full model for everybody.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from potluck.fleet import ClientId, Fleet, Local, Params
from potluck.learn import Recipe
from potluck.methods.parts.cohort import sample
from potluck.methods.parts.submodels.train import Dealt, Mine, Train, Trained, train
from potluck.methods.parts.submodels.widths import cut, dealt, leading, plan_of

__all__ = ["PROGRAMS", "Config", "Mine", "Recipe", "State", "Train", "Trained", "personal", "record", "server", "start"]


@dataclass(frozen=True)
class Config(Dealt):
    """Widths, shares and the clients' training as in FedConv; nothing of its own."""


@dataclass(frozen=True)
class State:
    first: Params  # what everybody begins with, at full width
    round: int = 0
    known: dict[ClientId, float] = field(default_factory=dict)  # who has begun, and its width


def start(weights: Params, cfg: Config) -> State:
    return State(weights)


def private(weights: Params, cfg: Config) -> Mine:
    return Mine({})


def check(cfg: Config, home: Local) -> None:
    plan_of(home.model)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    plan = plan_of(fleet.home.model)
    width_of = dealt(fleet.clients, cfg.widths, cfg.shares, cfg.seed)
    every = tuple(fleet.home.model.layers())  # all of them are the client's own
    buffers = tuple(name for name in state.first if name not in fleet.home.model.trainable)

    def task(sub: Params) -> Train:
        return Train(sub, cfg.recipe, every + buffers)

    first = {width: task(cut(state.first, plan, leading(plan, width))) for width in cfg.widths}
    go_on = task({})
    while True:
        chosen = sample(fleet, cfg.cohort, cfg.seed, state.round)
        arrivals = fleet.gather({c: go_on if c in state.known else first[width_of[c]] for c in chosen})
        known = state.known | {a.client: width_of[a.client] for a in arrivals}
        state = State(state.first, state.round + 1, known)
        yield state


PROGRAMS = {Train: train}


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    return mine.weights or state.first


def record(state: State) -> dict[str, Any]:
    return {"widths": state.known}
