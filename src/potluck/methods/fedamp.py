"""FedAMP: similar clients attract each other; the server sends each client a mean of models like its own.

Huang et al., "Personalized Cross-Silo Federated Learning on Non-IID Data", AAAI 2021, Algorithm 1. The server computes
u_i = Σ_j xi_ij w_j, where xi_ij = alpha A'(||w_i - w_j||²) for j != i and xi_ii is the rest (eq. 3), with
A(x) = 1 - e^(-x / sigma). The client minimises F_i(w) + lambda / (2 alpha) ||w - u_i||² (eq. 4).
Deviation: sigma is a share of the mean squared distance between clients, so that it suits any model; alpha is chosen so
that a client's own share xi_ii is at least `own_share`, and lambda / alpha is one setting, `lam`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from potluck.fleet import Arrival, ClientId, Done, Fleet, Local, Params
from potluck.learn import Recipe, fit
from potluck.methods.parts import checks
from potluck.methods.parts.clusterfl.vectors import buffers, flat, parted, trained
from potluck.methods.parts.cohort import sample
from potluck.methods.parts.correction import prox
from potluck.release import Release
from potluck.spaces import Choice, Range, Space


@dataclass(frozen=True)
class Config:
    sigma: float = 0.5  # of A, as a share of the mean squared distance between two clients
    own_share: float = 0.3  # smallest xi_ii: what a client keeps of its own model
    lam: float = 0.1  # lambda / alpha: how strongly u_i pulls
    recipe: Recipe = Recipe(epochs=2)
    cohort: int = 0  # clients per round; 0: all
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        checks.above(self, "sigma", 0.0)
        checks.within(self, "own_share", 0.0, 1.0)
        checks.at_least(self, "lam", 0.0)


SPACE: Space = {
    "recipe.lr": Range(0.005, 0.5, log=True),
    "sigma": Choice(0.2, 0.5, 2.0),
    "own_share": Choice(0.1, 0.3, 0.6),
}


@dataclass(frozen=True)
class State:
    first: Params  # the start of all clients
    names: tuple[ClientId, ...] = ()  # clients that have answered
    models: Tensor = torch.zeros(0, 0)  # w_i: their weights and buffers, one row each
    clouds: Tensor = torch.zeros(0, 0)  # u_i
    tensors: tuple[str, ...] = ()  # what a row holds, in this order
    round: int = 0


@dataclass(frozen=True)
class Mine:
    weights: Params  # w_i


@dataclass(frozen=True)
class Train:
    """Server to client."""

    weights: Params  # u_i
    lam: float
    recipe: Recipe


@dataclass(frozen=True)
class Trained:
    """Client to server."""

    weights: Params  # w_i
    examples: Tensor


def start(weights: Params, cfg: Config) -> State:
    return State(weights)


def private(weights: Params, cfg: Config) -> Mine:
    return Mine(weights)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    model = fleet.home.model
    moving = trained(model, state.first)
    width = sum(state.first[name].numel() for name in moving)
    while True:
        state = replace(state, tensors=(*moving, *buffers(model, state.first)))
        sends = cloud_of(state)
        chosen = sample(fleet, cfg.cohort, cfg.seed, state.round)
        arrivals = fleet.gather({client: Train(sends(client), cfg.lam, cfg.recipe) for client in chosen})
        state = entered(state, arrivals)
        state = replace(state, clouds=attracted(state.models, width, cfg), round=state.round + 1)
        yield state


def cloud_of(state: State) -> Callable[[ClientId], Params]:
    """What the server sends each client: its u_i; to a client that never answered, the mean of all models."""
    place = {name: i for i, name in enumerate(state.names)}

    @cache
    def row(at: int | None) -> Params:
        if not len(place):
            return state.first
        values = state.models.mean(0) if at is None else state.clouds[at]
        return state.first | parted(values, state.tensors, state.first)

    return lambda client: row(place.get(client))


def entered(state: State, arrivals: Sequence[Arrival]) -> State:
    """The newest model of each client, one row each."""
    if not arrivals:
        return state
    rows = torch.stack([flat(arrival.update.weights, state.tensors) for arrival in arrivals])
    place = {name: i for i, name in enumerate(state.names)}
    new = [arrival.client for arrival in arrivals if arrival.client not in place]
    place |= {name: len(place) + i for i, name in enumerate(new)}
    models = torch.cat([state.models.reshape(len(state.names), rows.shape[1]), torch.zeros(len(new), rows.shape[1])])
    at = torch.tensor([place[arrival.client] for arrival in arrivals])
    return replace(state, names=tuple(place), models=models.index_copy(0, at, rows))


def attracted(models: Tensor, width: int, cfg: Config) -> Tensor:
    """Eq. (3): u_i of every client, one row each. Distances are those of the first `width` columns, the weights."""
    count = len(models)
    if count < 2:
        return models
    distance = torch.cdist(models[:, :width], models[:, :width], compute_mode="donot_use_mm_for_euclid_dist").square()
    scale = cfg.sigma * distance.sum() / (count * (count - 1))
    pull = torch.exp(-distance / scale.clamp_min(1e-12)).fill_diagonal_(0.0)  # A' up to alpha / sigma
    total = pull.sum(1, keepdim=True)
    share = pull * (1.0 - cfg.own_share) / total.max().clamp_min(1e-12)  # alpha: the largest step that keeps own_share
    share = share + torch.diag(1.0 - share.sum(1))
    return share @ models


def train(task: Train, local: Local) -> Done:
    """Eq. (4), from the client's own model."""
    pull = prox(task.lam, task.weights)
    begin = {n: v if n in local.model.trainable else task.weights[n] for n, v in local.mine.weights.items()}
    weights = fit(local.model, begin, local.data, task.recipe, key=local.key, pull=pull)
    return Done(Trained(weights, local.data.weight.sum()), mine=Mine(weights))


RELEASES = {Trained: Release(("weights",), counts=("examples",), single="it compares the clients' models")}
PROGRAMS = {Train: train}
HEADLINE = "own"


def received(state: State, client: ClientId) -> Params:
    return cloud_of(state)(client)


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    return mine.weights
