"""Centralised per cluster: the clients upload their samples, k-means groups them, one model is trained per group.

The oracle of ClusterFL's evaluation (Ouyang et al., ACM TOSN 18(4), 2022, section 3): what clusters could give if
privacy cost nothing. As in `centralised`, the raw samples cross the wire once and are counted. A client is described by
the mean and standard deviation of its inputs and by their mean per class. `groups` replaces k-means by known groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score
from torch import Tensor

from potluck import keys
from potluck.fleet import ClientId, Data, Fleet, Params
from potluck.learn import Recipe, fit, training_macs
from potluck.methods.centralised import Hand, Handed, hand, pooled
from potluck.methods.parts import checks
from potluck.methods.parts.cohort import ready
from potluck.needs import POOLED_ROWS
from potluck.spaces import Choice, Range, Space

MOST = 8  # clusters that are tried where their number is not given
CLASSES = "it groups clients by the means of their classes"
RELEASES = "clients hand over their samples"
PROGRAMS = {Hand: hand}
USES = (POOLED_ROWS,)
MESSAGES = (Hand, Handed)
HEADLINE = "received"


@dataclass(frozen=True)
class Config:
    clusters: int = 0  # 0: as many as the silhouette likes best
    groups: dict[str, int] = field(default_factory=dict)  # client -> known group, instead of k-means
    recipe: Recipe = Recipe(epochs=2)  # epochs of each pool per round
    server_macs_per_second: float = 5e10
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "clusters", 0)
        checks.above(self, "server_macs_per_second", 0.0)


SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True), "clusters": Choice(0, 2, 4)}


@dataclass(frozen=True)
class State:
    initial: Params
    models: dict[int, Params]  # cluster -> its model
    handed: dict[ClientId, Data]
    cluster: dict[ClientId, int]
    round: int = 0


def start(weights: Params, cfg: Config) -> State:
    return State(weights, {}, {}, {})


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    model = fleet.home.model
    pools: dict[int, Data] = {}
    while True:
        asked = {client: Hand() for client in ready(fleet) if client not in state.handed}
        came = {a.client: pooled([a.update.data]) for a in fleet.gather(asked)} if asked or not state.handed else {}
        if came or not pools:
            handed = state.handed | came
            cluster = grouped(handed, state.cluster, cfg, model.classes) if came else state.cluster
            pools = {k: pooled([handed[c] for c in handed if cluster[c] == k]) for k in sorted(set(cluster.values()))}
            models = {k: state.models.get(k, state.initial) for k in pools}
            state = State(state.initial, models, handed, cluster, state.round)
        models, macs = {}, 0.0
        for k, pool in pools.items():
            key = keys.key(cfg.seed, state.round, "cluster", k)
            models[k] = fit(model, state.models[k], pool, cfg.recipe, key=key)
            macs += cfg.recipe.epochs * len(pool.y) * training_macs(model, models[k], pool)
        fleet.spend(macs / cfg.server_macs_per_second)
        state = State(state.initial, models, state.handed, state.cluster, state.round + 1)
        yield state


def grouped(
    handed: Mapping[ClientId, Data], before: Mapping[ClientId, int], cfg: Config, classes: int
) -> dict[ClientId, int]:
    """The cluster of each client. A late client joins the nearest cluster: no model is thrown away for it."""
    names = list(handed)
    if cfg.groups:
        return {name: cfg.groups.get(name, -1) for name in names}
    rows = np.stack([described(handed[name], classes).numpy().astype(np.float64) for name in names])
    spread = rows.std(0)
    rows = rows / np.where(spread > 0, spread, 1.0)
    if before:
        known = [i for i, name in enumerate(names) if name in before]
        label = np.array([before[names[i]] for i in known])
        centre = {int(k): rows[known][label == k].mean(0) for k in np.unique(label)}
        labels, centres = list(centre), np.stack(list(centre.values()))
        nearest = ((rows[:, None] - centres) ** 2).sum(-1).argmin(1)
        return {name: before.get(name, labels[int(k)]) for name, k in zip(names, nearest, strict=True)}
    return dict(zip(names, _kmeans(rows, cfg), strict=True))


def _kmeans(rows: NDArray[np.float64], cfg: Config) -> list[int]:
    def at(k: int) -> list[int]:
        return [int(c) for c in KMeans(k, n_init=10, random_state=cfg.seed).fit_predict(rows)]

    if cfg.clusters or len(rows) < 3:
        return at(min(cfg.clusters or 1, len(rows)))
    tried = [at(k) for k in range(2, min(MOST, len(rows) - 1) + 1)]
    return max(tried, key=lambda labels: silhouette_score(rows, labels) if len(set(labels)) > 1 else -1.0)


def described(data: Data, classes: int) -> Tensor:
    """One vector for a client: mean and standard deviation of its inputs, and the mean of each class's."""
    x = data.x.flatten(1)
    member = torch.nn.functional.one_hot(data.y, classes).to(x.dtype)
    per_class = (member.T @ x) / member.sum(0).clamp_min(1.0)[:, None]
    return torch.cat([x.mean(0), x.std(0, correction=0), per_class.flatten()])


def personal(state: State, client: ClientId, mine: None) -> Params:
    return state.models.get(state.cluster.get(client, -1), state.initial)


def received(state: State, client: ClientId) -> Params:
    """The model of the client's cluster; for a client that handed nothing over, that of the largest one."""
    members = list(state.cluster.values())
    number = state.cluster.get(client, max(members, key=members.count, default=-1))
    return state.models.get(number, state.initial)


def clusters(state: State) -> Mapping[ClientId, int]:
    return state.cluster
