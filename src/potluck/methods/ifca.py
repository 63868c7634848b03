"""IFCA: the server keeps k models; each client picks the one with the lowest loss and trains it.

Ghosh et al., "An Efficient Framework for Clustered Federated Learning", NeurIPS 2020, Algorithm 1 with option II (model
averaging). Deviation: models are weighted by their samples. The first model is the run's own start, and the others are
drawn with other seeds, as in the paper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from potluck.fleet import Arrival, ClientId, Done, Fleet, Local, Params
from potluck.learn import Recipe, fit, row_losses
from potluck.methods.parts import checks
from potluck.methods.parts.cohort import sample
from potluck.methods.parts.merge import MEAN, Merge, merged
from potluck.methods.parts.starts import other_start
from potluck.release import Release
from potluck.spaces import Choice, Range, Space


@dataclass(frozen=True)
class Config:
    clusters: int = 2  # k
    recipe: Recipe = Recipe(epochs=2)
    cohort: int = 0  # clients per round; 0: all
    merge: Merge = MEAN  # how the server combines models
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        checks.at_least(self, "clusters", 1)


SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True), "clusters": Choice(1, 2, 4)}


@dataclass(frozen=True)
class State:
    models: list[Params]  # one until the first round, then k
    members: dict[ClientId, int] = field(default_factory=dict)  # the last choice of each client
    round: int = 0


@dataclass(frozen=True)
class Train:
    """Server to client: all k models, each tensor with the cluster as its first axis."""

    models: Params
    recipe: Recipe


@dataclass(frozen=True)
class Trained:
    """Client to server."""

    weights: Params
    cluster: Tensor  # which model it chose
    examples: Tensor


def start(weights: Params, cfg: Config) -> State:
    return State([weights])


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        models = state.models
        if len(models) < cfg.clusters:
            models = [models[0], *(other_start(fleet.home.model, cfg.seed, i) for i in range(1, cfg.clusters))]
        task = Train({name: torch.stack([model[name] for model in models]) for name in models[0]}, cfg.recipe)
        chosen = sample(fleet, cfg.cohort, cfg.seed, state.round)
        arrivals = fleet.gather({client: task for client in chosen})
        groups: dict[int, list[Arrival]] = {}
        for arrival in arrivals:
            groups.setdefault(int(arrival.update.cluster), []).append(arrival)
        models = [_merged(model, groups.get(j, []), cfg.merge) for j, model in enumerate(models)]
        joined = {one.client: j for j, group in groups.items() if 0 <= j < cfg.clusters for one in group}
        state = State(models, state.members | joined, state.round + 1)
        yield state


def _merged(model: Params, group: list[Arrival], merge: Merge) -> Params:
    """Line 12, option II. A cluster that nobody chose keeps its model."""
    updates = [arrival.update for arrival in group]
    return merged([u.weights for u in updates], [u.examples for u in updates], merge, model) if updates else model


def train(task: Train, local: Local) -> Done:
    model, data = local.model, local.data
    count = len(next(iter(task.models.values())))
    losses = []
    for j in range(count):
        one = {name: value[j] for name, value in task.models.items()}
        losses.append((row_losses(model, one, data) * data.weight).sum())
    best = torch.stack(losses).argmin()  # line 6
    begin = {name: value[best] for name, value in task.models.items()}
    weights = fit(model, begin, data, task.recipe, key=local.key)
    return Done(Trained(weights, best, data.weight.sum()), own=weights)


def _chosen(task: Train, update: Trained) -> Params:
    """The model that the client started from."""
    return {name: value[int(update.cluster)] for name, value in task.models.items()}


RELEASES = {Trained: Release(models=("weights",), base=_chosen, weight="examples", by="cluster")}
PROGRAMS = {Train: train}


def received(state: State, client: ClientId) -> Params:
    """The model of a client's cluster; for a client that never answered, that of the largest cluster."""
    sizes = [sum(1 for j in state.members.values() if j == i) for i in range(len(state.models))]
    return state.models[state.members.get(client, sizes.index(max(sizes)))]


def personal(state: State, client: ClientId, mine: None) -> Params:
    return received(state, client)


HEADLINE = "received"


def clusters(state: State) -> Mapping[ClientId, int]:
    return state.members
