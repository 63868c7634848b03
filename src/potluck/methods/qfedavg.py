"""q-FedAvg: clients with a high loss count more, so that accuracy is spread more evenly.

Li et al., "Fair Resource Allocation in Federated Learning", ICLR 2020, Algorithm 2. With L = 1/lr and F_k the client's
loss with the model received: Delta w_k = L (w - w_k), Delta_k = F_k^q Delta w_k,
h_k = q F_k^(q-1) ||Delta w_k||² + L F_k^q, and w <- w - Σ Delta_k / Σ h_k.
With q = 0 it is FedAvg with equal weights. Deviation: buffers are averaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from potluck.fleet import Done, Fleet, Local, Params
from potluck.learn import Recipe, fit, row_losses
from potluck.methods.fedavg import State, Train, shared, start
from potluck.methods.parts import checks
from potluck.methods.parts.cohort import sample
from potluck.release import Release
from potluck.spaces import Choice, Range, Space
from potluck.tensors import mean

__all__ = ["PROGRAMS", "Config", "State", "Train", "Trained", "server", "shared", "start", "train"]


@dataclass(frozen=True)
class Config:
    q: float = 1.0  # 0: all losses count alike; the larger, the more the worst clients count
    recipe: Recipe = Recipe(epochs=2)
    cohort: int = 0  # clients per round; 0: all
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        checks.at_least(self, "q", 0.0)


SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True), "q": Choice(0.1, 1.0, 5.0)}


@dataclass(frozen=True)
class Trained:
    """Client to server."""

    weights: Params
    loss: Tensor  # F_k of the model received
    examples: Tensor


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        task = Train(state.weights, cfg.recipe)
        chosen = sample(fleet, cfg.cohort, cfg.seed, state.round)
        updates = [arrival.update for arrival in fleet.gather({client: task for client in chosen})]
        weights = step(state.weights, updates, cfg, fleet.home.model.trainable) if updates else state.weights
        state = State(weights, state.round + 1)
        yield state


def step(weights: Params, updates: list[Any], cfg: Config, trained: frozenset[str]) -> Params:
    """Lines 7 and 8, with all sums over clients as products of matrices."""
    inverse = 1.0 / cfg.recipe.lr  # L
    loss = torch.stack([update.loss for update in updates]).clamp_min(1e-10)
    changes = {
        n: inverse * (weights[n] - torch.stack([u.weights[n] for u in updates])) for n in weights if n in trained
    }
    squares = sum(change.flatten(1).square().sum(1) for change in changes.values())
    denominator = (cfg.q * loss ** (cfg.q - 1.0) * squares + inverse * loss**cfg.q).sum()  # Σ h_k
    average = mean([update.weights for update in updates])
    moved = {n: weights[n] - torch.tensordot(loss**cfg.q, change, 1) / denominator for n, change in changes.items()}
    return average | moved


def train(task: Train, local: Local) -> Done:
    model, data = local.model, local.data
    losses = row_losses(model, task.weights, data)
    examples = data.weight.sum()
    loss = (losses * data.weight).sum() / examples.clamp_min(1.0)
    weights = fit(model, task.weights, data, task.recipe, key=local.key)
    return Done(Trained(weights, loss, examples), own=weights)


RELEASES = {
    Trained: Release(("weights",), ("loss",), counts=("examples",), single="it weighs each update by its own loss")
}
PROGRAMS = {Train: train}
