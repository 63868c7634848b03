"""FedSEA: the server sets synchronisation points and aggregates, at each, the updates that have arrived by then.

After Sun et al., "FedSEA: A Semi-Asynchronous Federated Learning Framework for Extremely Heterogeneous Devices", SenSys
2022, as EchoPFL uses it (section 7.1). Synchronisation points are scheduled from predicted arrival times. Stragglers
train on over several points, and the server weighs their updates by age instead of dropping them. Our choices: the
prediction is the client's last duration. The next point is when `share` of the busy clients should have answered; while
nothing is known, when that share has answered; where all are late, when the first one answers. A change of age a counts
(a + 1)^-power. `round` counts synchronisation points.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from potluck.fleet import Arrival, ClientId, Fleet, Params
from potluck.learn import Recipe
from potluck.methods.fedbuff import Changed, Train, train
from potluck.methods.parts import checks
from potluck.methods.parts.shared_map import SharedMap
from potluck.methods.parts.staleness import polynomial
from potluck.release import Release
from potluck.spaces import Choice, Range, Space
from potluck.tensors import each, mean

__all__ = ["PROGRAMS", "Changed", "Config", "Known", "State", "Train", "record", "server", "shared", "start"]


@dataclass(frozen=True)
class Config:
    share: float = 0.5  # of those at work that a synchronisation point waits for
    period: float = 0.0  # seconds between points; above 0 it replaces the prediction
    power: float = 0.5  # an update of some age counts (age + 1)^-power
    recipe: Recipe = Recipe(epochs=2)
    seed: int = 0

    def __post_init__(self) -> None:
        checks.within(self, "share", 0.0, 1.0)
        checks.at_least(self, "period", 0.0)
        checks.at_least(self, "power", 0.0)


SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True), "share": Choice(0.25, 0.5, 0.75)}


@dataclass(frozen=True)
class Known:
    """Of one client: how long it took the last time, and when its present task was sent; None: it is not at work."""

    seconds: float | None
    sent: float | None


@dataclass(frozen=True)
class State:
    weights: Params
    round: int = 0
    clients: Mapping[ClientId, Known] = field(default_factory=SharedMap)
    arrivals: int = 0
    staleness: tuple[int, int] = (0, 0)


def start(weights: Params, cfg: Config) -> State:
    return State(weights)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    clients = SharedMap.of(state.clients)
    while True:
        version = torch.tensor(state.round)
        task = Train(state.weights, version, cfg.recipe)
        clients = _sent(fleet, task, clients)
        point, wanted = _next_point(clients, fleet.now, cfg)
        came: list[Changed] = []
        answers = 0
        while answers < wanted:
            answer = fleet.receive(until=point)
            if answer is None and point is not None and fleet.now < point:
                continue  # somebody new came: work is for the next point
            if answer is None and (cfg.period or came):
                break
            if answer is None and point is None:  # somebody is back, and nothing to aggregate yet
                clients = _sent(fleet, task, clients)
                continue
            if answer is None:  # those expected are late: the point is when the first of them comes
                point, wanted = None, 1
                continue
            answers += point is None
            if isinstance(answer, Arrival):
                clients = clients.put(answer.client, Known(answer.at - answer.sent, None))
                came.append(answer.update)
            else:
                clients = clients.drop(answer.client)  # no answer is expected until its next task
        ages = [state.round - int(change.version) for change in came]
        weights = state.weights
        if came:
            counts = [c.examples * polynomial(age, cfg.power) for c, age in zip(came, ages, strict=True)]
            step = mean([c.change for c in came], counts)
            # An old change is smaller, not only a smaller part of the mean.
            size = float(sum(counts)) / max(1e-12, float(sum(c.examples for c in came)))
            weights = each(lambda w, d, s=size: w + s * d if w.is_floating_point() else w, weights, step)
        state = State(
            weights,
            state.round + 1,
            clients,
            state.arrivals + len(came),
            (state.staleness[0] + sum(ages), max([state.staleness[1], *ages])),
        )
        yield state


def _sent(fleet: Fleet, task: Train, clients: SharedMap[Known]) -> SharedMap[Known]:
    """Give everybody idle the task."""
    for client in fleet.idle:
        known = clients.get(client)
        clients = clients.put(client, Known(known.seconds if known else None, fleet.now))
        fleet.send(task, to=client)
    return clients


def _next_point(clients: Mapping[ClientId, Known], now: float, cfg: Config) -> tuple[float | None, float]:
    """The moment of the next synchronisation, or None and how many answers to wait for."""
    if cfg.period:
        return now + cfg.period, math.inf
    busy = [(known.sent, known.seconds) for known in clients.values() if known.sent is not None]
    expected = sorted(max(now, sent + seconds) for sent, seconds in busy if seconds is not None)
    wanted = max(1, math.ceil(cfg.share * len(busy)))
    if len(expected) < wanted:
        return None, wanted
    return max(expected[wanted - 1], now + 1e-9), math.inf


RELEASES = {
    Changed: Release(
        changes=("change",), weight="examples", open=("version",), single="its sums end at a moment", by_fit=True
    )
}
PROGRAMS = {Train: train}


def shared(state: State) -> Params:
    return state.weights


def record(state: State) -> dict[str, Any]:
    return {
        "staleness_mean": state.staleness[0] / max(1, state.arrivals),
        "staleness_max": state.staleness[1],
    }
