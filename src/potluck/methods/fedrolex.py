"""FedRolex: as HeteroFL, but the window of channels moves on by one each round, so that every weight gets its turn.

Alam et al., "FedRolex: Model-Heterogeneous Federated Learning with Rolling Sub-Model Extraction", NeurIPS 2022,
Algorithm 1, equation (3). Deviation: none but the clients' optimiser, Adam as in FedConv's comparison.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from potluck.fleet import ClientId, Fleet, Local, Params
from potluck.learn import Recipe
from potluck.methods.parts.cohort import sample
from potluck.methods.parts.submodels.train import Dealt, Mine, Train, Trained, train
from potluck.methods.parts.submodels.widths import cut, dealt, merged, plan_of, rolled

__all__ = [
    "PROGRAMS",
    "Config",
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
class Config(Dealt):
    """Widths, shares and the clients' training as in FedConv; nothing of its own."""


@dataclass(frozen=True)
class State:
    weights: Params
    round: int = 0  # j, also the shift of the window
    known: dict[ClientId, float] = field(default_factory=dict)  # who has answered, and its width


def start(weights: Params, cfg: Config) -> State:
    return State(weights)


def private(weights: Params, cfg: Config) -> Mine:
    return Mine({})


def check(cfg: Config, home: Local) -> None:
    plan_of(home.model)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    plan = plan_of(fleet.home.model)
    width_of = dealt(fleet.clients, cfg.widths, cfg.shares, cfg.seed)
    while True:
        part = {width: rolled(plan, width, state.round) for width in cfg.widths}  # eq. (3)
        task = {width: Train(cut(state.weights, plan, part[width]), cfg.recipe) for width in cfg.widths}
        chosen = sample(fleet, cfg.cohort, cfg.seed, state.round)
        arrivals = fleet.gather({client: task[width_of[client]] for client in chosen})
        trained = [(a.update.weights, part[width_of[a.client]], a.update.examples) for a in arrivals]
        known = state.known | {a.client: width_of[a.client] for a in arrivals}
        state = State(merged(state.weights, plan, trained), state.round + 1, known)
        yield state


PROGRAMS = {Train: train}


def shared(state: State) -> Params:
    return state.weights


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    return mine.weights or state.weights


def record(state: State) -> dict[str, Any]:
    return {"widths": state.known}
