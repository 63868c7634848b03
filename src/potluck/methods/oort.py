"""Oort: synchronous rounds with the clients whose samples would teach most and that are not too slow.

Lai et al., "Oort: Efficient Federated Learning via Guided Participant Selection", OSDI 2021, Algorithm 1: utility =
n sqrt(mean loss^2) x (T / t_i)^alpha for a client slower than T (eq. 1 to 3), plus a bonus for a client not asked
for long. A share epsilon of the cohort explores clients never asked; the pacer relaxes T when utility falls.
Deviations: no clipping of utilities and no blacklist. The bonus is a share of the utility, whose scale differs between
datasets. The best clients are taken, not drawn by utility from those near them. Unknown clients are drawn evenly,
since their speed is not known yet. T starts at the median duration seen first. A client slower than those that count
goes on training, and its answer is dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median

from torch import Tensor

from potluck import keys
from potluck.fleet import Arrival, ClientId, Done, Fleet, Local, Params
from potluck.learn import Recipe, fit, row_losses
from potluck.methods.parts import checks
from potluck.methods.parts.cohort import ready
from potluck.methods.parts.merge import MEAN, Merge, merged
from potluck.methods.parts.shared_map import SharedMap
from potluck.release import Release
from potluck.spaces import Choice, Range, Space
from potluck.unforeseen import Unforeseen


@dataclass(frozen=True)
class Config:
    cohort: int = 0  # K, clients whose answers make a round; 0: half of the fleet
    over: float = 1.3  # over-selection: over x K clients get the task, the first K answers count
    alpha: float = 2.0  # how hard a client is judged that is slower than T
    explore: float = 0.9  # epsilon at the start
    decay: float = 0.98  # of epsilon per round
    least: float = 0.2  # epsilon never falls below
    window: int = 5  # rounds the pacer compares
    recipe: Recipe = Recipe(epochs=2)
    merge: Merge = MEAN  # how the server combines models
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        checks.at_least(self, "over", 1.0)
        checks.at_least(self, "alpha", 0.0)
        checks.at_least(self, "window", 1)
        for name in ("explore", "decay", "least"):
            checks.within(self, name, 0.0, 1.0)


SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True), "alpha": Choice(0.5, 2.0)}


@dataclass(frozen=True)
class Judged:
    """What is known of a client that answered."""

    utility: float  # n sqrt(mean loss^2)
    seconds: float  # t_i
    round: int  # when


@dataclass(frozen=True)
class State:
    weights: Params
    round: int = 0
    seen: Mapping[ClientId, Judged] = field(default_factory=SharedMap)
    pace: float = 0.0  # T; 0: not known yet
    step: float = 0.0  # Delta, by which T is relaxed
    gains: tuple[float, ...] = ()  # utility of the newest rounds


@dataclass(frozen=True)
class Train:
    """Server to client."""

    weights: Params
    recipe: Recipe


@dataclass(frozen=True)
class Trained:
    """Client to server."""

    weights: Params
    examples: Tensor
    squares: Tensor  # mean of the squared losses of the model that came


def start(weights: Params, cfg: Config) -> State:
    return State(weights)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    seen = SharedMap.of(state.seen)
    while True:
        wanted = cfg.cohort or max(1, len(fleet.clients) // 2)
        most = math.ceil(cfg.over * wanted)
        chosen = select(list(ready(fleet, most)), seen, state, cfg, most)
        task = Train(state.weights, cfg.recipe)
        answers = _first(fleet, task, chosen, wanted)
        for a in answers:
            utility = float(a.update.examples) * math.sqrt(max(0.0, float(a.update.squares)))  # noise, or a lie
            seen = seen.put(a.client, Judged(utility, a.at - a.sent, state.round))
        weights = state.weights
        if answers:
            examples = [a.update.examples for a in answers]
            weights = merged([a.update.weights for a in answers], examples, cfg.merge, weights)
        gains = (*state.gains, sum(seen[a.client].utility for a in answers))[-2 * cfg.window :]
        pace, step = state.pace, state.step
        if not pace and answers:
            pace = step = median(a.at - a.sent for a in answers)
        if len(gains) == 2 * cfg.window and sum(gains[: cfg.window]) > sum(gains[cfg.window :]):  # line 8: the pacer
            pace, gains = pace + step, ()
        state = State(weights, state.round + 1, seen, pace, step, gains)
        yield state


def _first(fleet: Fleet, task: Train, chosen: list[ClientId], wanted: int) -> list[Arrival]:
    """The first answers to this task, as many as wanted or as there are: with them the round is over."""
    waiting, came = set(chosen), list[Arrival]()
    for client in chosen:
        fleet.send(task, to=client)
    if not chosen:  # all are away, or still at work for a round that is over
        fleet.receive()
    while waiting and len(came) < wanted:
        answer = fleet.receive()
        if answer is None or answer.client not in waiting:  # somebody new, or the answer to an earlier task
            continue
        waiting.remove(answer.client)
        if isinstance(answer, Arrival):
            came.append(answer)
    return came


def select(
    idle: list[ClientId], seen: Mapping[ClientId, Judged], state: State, cfg: Config, count: int
) -> list[ClientId]:
    """Lines 10 to 18: the best of those known, and some of the others at random, in the order of the roster."""
    known = [client for client in idle if client in seen]
    unknown = [client for client in idle if client not in seen]
    count = min(count, len(idle))
    epsilon = max(cfg.least, cfg.explore * cfg.decay**state.round)
    tried = min(len(unknown), max(round(epsilon * count), count - len(known)))
    ranked = sorted(known, key=lambda client: (-worth(seen[client], state, cfg), client))
    draw = keys.rng(cfg.seed, state.round, "oort")
    new = [unknown[int(i)] for i in draw.choice(len(unknown), size=tried, replace=False)] if tried else []
    taken = {*ranked[: count - tried], *new}
    return [client for client in idle if client in taken]


def worth(client: Judged, state: State, cfg: Config) -> float:
    """Eq. 3, and the confidence bonus of line 12."""
    bonus = math.sqrt(0.1 * math.log(max(2, state.round + 1)) / max(1, client.round))
    utility = client.utility * (1.0 + bonus)
    slow = state.pace > 0 and client.seconds > state.pace
    return float(utility * (state.pace / client.seconds) ** cfg.alpha) if slow else utility


def train(task: Train, local: Local) -> Done:
    data = local.data
    losses = row_losses(local.model, task.weights, data)
    squares = (losses**2 * data.weight).sum() / data.weight.sum().clamp_min(1.0)
    weights = fit(local.model, task.weights, data, task.recipe, key=local.key)
    return Done(Trained(weights, data.weight.sum(), squares), own=weights)


RELEASES = {
    Trained: Release(("weights",), ("squares",), weight="examples", single="it chooses clients by their losses")
}
UNFORESEEN = Unforeseen("whom it asks next")
PROGRAMS = {Train: train}


def shared(state: State) -> Params:
    return state.weights
