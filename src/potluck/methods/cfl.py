"""CFL: clusters are split in two whenever their clients pull in opposite directions.

Sattler et al., "Clustered Federated Learning: Model-Agnostic Distributed Multitask Optimization under Privacy
Constraints", 2020, Algorithm 3. A cluster whose mean change is small (eq. 31) while some client's change is large
(eq. 32) is split so that the largest cosine similarity between the two halves is smallest (eq. 28).
Deviations: both conditions are one ratio, ||mean change|| < `ratio` x largest ||change||, which does not depend on the
size of a model; `eps1` and `eps2` give the printed ones. Complete linkage finds the halves. All clients take part. A
client that comes after a split walks down the tree of splits (Algorithm 4), where each half is one mean direction and
not all changes of its clients.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from torch import Tensor

from potluck.fleet import Arrival, ClientId, Fleet, Params
from potluck.learn import Recipe
from potluck.methods.fedavg import Train, Trained, train
from potluck.methods.parts import checks
from potluck.methods.parts.cohort import ready
from potluck.methods.parts.merge import MEAN, Merge, merged
from potluck.release import Release
from potluck.spaces import Choice, Range, Space

__all__ = ["PROGRAMS", "Config", "State", "Train", "Trained", "clusters", "personal", "received", "server", "start"]


@dataclass(frozen=True)
class Config:
    ratio: float = 0.25  # eps1 / eps2 of the released code; 0: use eps1 and eps2
    eps1: float = 0.4  # largest norm of the mean change of a cluster that is split
    eps2: float = 1.6  # smallest norm of its largest change
    first: int = 5  # rounds before the first split
    smallest: int = 4  # clients of a cluster that may be split
    recipe: Recipe = Recipe(epochs=2)
    merge: Merge = MEAN  # how the server combines models
    seed: int = 0

    def __post_init__(self) -> None:
        checks.within(self, "ratio", 0.0, 1.0)
        for name in ("eps1", "eps2"):
            checks.above(self, name, 0.0)
        checks.at_least(self, "first", 0)
        checks.at_least(self, "smallest", 2)


SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True), "ratio": Choice(0.1, 0.25, 0.5)}


@dataclass(frozen=True)
class Split:
    """One node of the tree: what a client that comes later trains, and which way it goes then."""

    old: int  # the cluster that was split, which the larger half keeps
    new: int
    model: Params  # that both halves began from
    stays: Tensor  # mean direction of the changes of those that stayed
    leaves: Tensor


@dataclass(frozen=True)
class State:
    models: list[Params]
    members: dict[ClientId, int] = field(default_factory=dict)  # cluster of each client; 0 until it answered
    round: int = 0
    tree: list[Split] = field(default_factory=list)  # in the order of the splits


def start(weights: Params, cfg: Config) -> State:
    return State([weights])


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    trained = [name for name in state.models[0] if name in fleet.home.model.trainable]
    while True:
        tasks = [Train(model, cfg.recipe) for model in state.models]
        places = _placed(fleet, state, cfg, trained)
        arrivals = fleet.gather({client: tasks[place] for client, place in places.items()})
        members = state.members | {one.client: places[one.client] for one in arrivals}
        models, tree = list(state.models), list(state.tree)
        for j, model in enumerate(state.models):
            group = [one for one in arrivals if members[one.client] == j]
            if not group:
                continue
            updates = [one.update for one in group]
            models[j] = merged([u.weights for u in updates], [u.examples for u in updates], cfg.merge, model)
            changes = torch.stack([change(u.weights, model, trained) for u in updates])
            examples = torch.stack([u.examples for u in updates])
            if state.round >= cfg.first and splits(changes, examples, cfg):
                away = second_half(changes)
                members |= _moved(group, away, members, j, len(models))
                tree.append(Split(j, len(models), model, direction(changes[~away]), direction(changes[away])))
                models[j], second = (_half(group, away, side, cfg.merge) for side in (False, True))
                models.append(second)
        state = State(models, members, state.round + 1, tree)
        yield state


def _placed(fleet: Fleet, state: State, cfg: Config, trained: list[str]) -> dict[ClientId, int]:
    """The cluster of every client of this round. Algorithm 4 finds those of the clients that no split has seen.

    At each node a client trains the model that was split there, and goes to the half whose changes are more like its
    own. One that gives no answer on its way takes no part in the round.
    """
    places = {client: state.members.get(client, 0) for client in ready(fleet)}
    at = {client: 0 for client in places if client not in state.members and state.tree}  # the next split to pass
    while at:
        at = {client: _next(state.tree, start, places[client]) for client, start in at.items()}
        at = {client: node for client, node in at.items() if node < len(state.tree)}
        tasks = {node: Train(state.tree[node].model, cfg.recipe) for node in set(at.values())}
        answers = fleet.gather({client: tasks[node] for client, node in at.items()}) if at else []
        for client in at.keys() - {one.client for one in answers}:
            del places[client]
        for one in answers:
            split = state.tree[at[one.client]]
            moved = change(one.update.weights, split.model, trained)
            places[one.client] = split.new if moved @ split.leaves > moved @ split.stays else split.old
        at = {one.client: at[one.client] + 1 for one in answers}
    return places


def _next(tree: list[Split], start: int, cluster: int) -> int:
    return next((i for i in range(start, len(tree)) if tree[i].old == cluster), len(tree))


def change(after: Params, before: Params, trained: list[str]) -> Tensor:
    return torch.cat([(after[name] - before[name]).flatten() for name in trained])


def direction(changes: Tensor) -> Tensor:
    """The mean direction of these changes, as a unit vector."""
    unit = torch.nn.functional.normalize
    return unit(unit(changes).mean(0), dim=0)


def splits(changes: Tensor, examples: Tensor, cfg: Config) -> bool:
    """Equations (31) and (32)."""
    if len(changes) < cfg.smallest:
        return False
    small = float(torch.linalg.vector_norm((examples / examples.sum()) @ changes))
    large = float(torch.linalg.vector_norm(changes, dim=1).max())
    return small < cfg.ratio * large if cfg.ratio else small < cfg.eps1 and large > cfg.eps2


def second_half(changes: Tensor) -> np.ndarray:
    """Which clients leave: eq. (28) by complete linkage on 1 - cosine similarity. The larger part stays."""
    unit = torch.nn.functional.normalize(changes)
    apart = (1.0 - (unit @ unit.T).double().numpy()).clip(0.0)
    np.fill_diagonal(apart, 0.0)
    label = fcluster(linkage(squareform(apart, checks=False), "complete"), 2, "maxclust")
    return np.asarray(label != np.bincount(label).argmax())


def _moved(
    group: list[Arrival], away: np.ndarray, members: Mapping[ClientId, int], old: int, new: int
) -> dict[ClientId, int]:
    """The new clusters of those that leave. A member that did not answer in this round stays."""
    return {one.client: new for one, leaves in zip(group, away, strict=True) if leaves and members[one.client] == old}


def _half(group: list[Arrival], away: np.ndarray, side: bool, merge: Merge) -> Params:
    updates = [one.update for one, leaves in zip(group, away, strict=True) if bool(leaves) == side]
    return merged([u.weights for u in updates], [u.examples for u in updates], merge)


RELEASES = {
    Trained: Release(("weights",), weight="examples", single="it compares updates to split clusters", by_fit=True)
}
PROGRAMS = {Train: train}
HEADLINE = "received"


def received(state: State, client: ClientId) -> Params:
    return state.models[state.members.get(client, 0)]


def personal(state: State, client: ClientId, mine: None) -> Params:
    return received(state, client)


def clusters(state: State) -> Mapping[ClientId, int]:
    return state.members
