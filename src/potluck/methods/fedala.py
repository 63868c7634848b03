"""FedALA: before training, each client learns which entries of the global model to take over.

Zhang et al., "FedALA: Adaptive Local Aggregation for Personalized Federated Learning", AAAI 2023, Algorithm 1. Local
training starts from own + (global - own) * W in the last p layers (eq. 4), and the global model in the layers before.
W follows the gradient of the loss on a share s of the client's samples, clipped to 0..1 (eq. 5).
Deviation: in a client's first tasks W gets `first_epochs` instead of training until its loss settles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from potluck import keys
from potluck.fleet import ClientId, Data, Done, Fleet, Local, Params
from potluck.learn import Recipe, Rows, batches, fit, mean_loss, slope_of, step_keys, steps, take
from potluck.methods.fedavg import State, Trained, averaged, shared, start
from potluck.methods.parts import checks
from potluck.methods.parts.merge import MEAN, Merge
from potluck.release import Release
from potluck.spaces import Choice, Range, Space

__all__ = ["PROGRAMS", "State", "Trained", "shared", "start"]  # with those of FedAvg


@dataclass(frozen=True)
class Config:
    UNUSED: ClassVar[tuple[str, ...]] = ("recipe.optimiser", "recipe.clip")
    layers: int = 1  # p: layers that are mixed, counted from the output
    share: float = 0.8  # s: of a client's samples, for W
    eta: float = 1.0  # learning rate of W
    first_epochs: int = 5  # of W in round 2, where a client's model differs from the global one for the first time
    recipe: Recipe = Recipe(epochs=2)
    cohort: int = 0  # clients per round; 0: all
    merge: Merge = MEAN  # how the server combines models
    seed: int = 0

    def __post_init__(self) -> None:
        checks.unused(self)
        checks.at_least(self, "cohort", 0)
        checks.at_least(self, "layers", 1)
        checks.share(self, "share")
        checks.above(self, "eta", 0.0)
        checks.at_least(self, "first_epochs", 1)


SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True), "layers": Choice(1, 2)}


@dataclass(frozen=True)
class Mine:
    weights: Params  # the client's model after its last task
    mixing: Params  # W


@dataclass(frozen=True)
class Train:
    """Server to client."""

    weights: Params
    layers: int
    share: float
    eta: float
    mixing_epochs: int  # of W; 0 in the first round, where both models are the same
    recipe: Recipe


def private(weights: Params, cfg: Config) -> Mine:
    return Mine(weights, {name: torch.ones_like(w) for name, w in weights.items() if w.is_floating_point()})


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        epochs = {0: 0, 1: cfg.first_epochs}.get(state.round, 1)
        task = Train(state.weights, cfg.layers, cfg.share, cfg.eta, epochs, cfg.recipe)
        weights = averaged(fleet, task, state.weights, cfg.cohort, cfg.seed, state.round, merge=cfg.merge)
        state = State(weights, state.round + 1)
        yield state


def train(task: Train, local: Local) -> Done:
    mine: Mine = local.mine
    mixing, begin = mine.mixing, task.weights
    if task.mixing_epochs:
        mixing = learned(task, local)
        begin = begin | initial(mine.weights, begin, mixing, local.model.last_layers(task.layers))
    weights = fit(local.model, begin, local.data, task.recipe, key=local.key)
    return Done(Trained(weights, local.data.weight.sum()), mine=Mine(weights, mixing))


def initial(own: Params, common: Params, mixing: Params, names: frozenset[str]) -> Params:
    """Eq. (4) for the last p layers."""
    return {n: own[n] + (common[n] - own[n]) * mixing[n] for n in common if n in names}


def learned(task: Train, local: Local) -> Params:
    """W after some epochs on a share of the samples (eq. 5). The models themselves stay as they are."""
    model, data, own = local.model, local.data, local.mine.weights
    key, names = keys.fold(local.key, "mixing"), model.last_layers(task.layers)
    moving = [name for name in task.weights if name in names]
    few = _some(data, task.share, key)
    rows, counts = batches(data, task.recipe.batch, task.mixing_epochs, key, few)
    own_keys = step_keys(key, counts)

    def loss(mixing: Params, part: Data, k: Tensor) -> tuple[Tensor, Params]:
        value, _ = mean_loss(model, task.weights | initial(own, task.weights, mixing, names), part, k)
        return value, {}

    mixing: Params = local.mine.mixing
    values = [mixing[name] for name in moving]
    for step, row, count in steps(rows, counts):
        slope, _ = slope_of(loss, moving, values, {}, take(data, row, count), own_keys[step])
        rate = task.eta * (count.sum() > 0)
        values = [(v - rate * g).clamp(0.0, 1.0) for v, g in zip(values, slope, strict=True)]
    return mixing | dict(zip(moving, values, strict=True))


def _some(data: Data, share: float, key: Tensor) -> Rows:
    """A share of the samples, drawn anew for each task."""
    capacity = data.weight.shape[0]
    order = keys.permutation(keys.fold(key, "some"), capacity, data.weight)
    most = torch.ceil(share * data.weight.sum())
    return Rows(order, data.weight[order] * (torch.arange(capacity) < most), share)


RELEASES = {Trained: Release(models=("weights",), weight="examples")}
PROGRAMS = {Train: train}
HEADLINE = "own"


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    return mine.weights
