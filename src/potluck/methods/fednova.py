"""FedNova: changes are divided by the local steps behind them, so that clients with many steps do not pull harder.

Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization", NeurIPS 2020,
eq. (8): w <- w - tau_eff Σ p_i eta d_i, where d_i is a client's change over ||a_i||_1 and tau_eff = Σ p_i ||a_i||_1.
For SGD a_i counts steps; with momentum rho, ||a_i||_1 = (tau - rho (1 - rho^tau) / (1 - rho)) / (1 - rho).
Deviation: the server computes ||a_i||_1 from the number of samples, so that a client cannot claim it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from potluck.fleet import Fleet, Params
from potluck.learn import Recipe
from potluck.methods.fedavg import SPACE, Config, State, Train, Trained, shared, start, train
from potluck.methods.parts.cohort import sample
from potluck.release import Release
from potluck.tensors import mean

__all__ = ["PROGRAMS", "SPACE", "Config", "State", "Train", "Trained", "server", "shared", "start", "train"]


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        task = Train(state.weights, cfg.recipe)
        chosen = sample(fleet, cfg.cohort, cfg.seed, state.round)
        updates = [arrival.update for arrival in fleet.gather({client: task for client in chosen})]
        weights = merged(state.weights, updates, cfg.recipe, fleet.home.model.trainable) if updates else state.weights
        state = State(weights, state.round + 1)
        yield state


def merged(weights: Params, updates: list[Any], recipe: Recipe, trained: frozenset[str]) -> Params:
    """Eq. (8). Buffers are averaged plainly."""
    examples = torch.stack([update.examples for update in updates])
    share = examples / examples.sum()  # p_i
    steps = normaliser(examples, recipe)  # ||a_i||_1
    effective = (share * steps).sum()  # tau_eff
    average = mean([update.weights for update in updates], share)
    # Σ p_i (w_i - w) / ||a_i||_1, as one weighted mean of models
    by_step = mean([update.weights for update in updates], share / steps)
    total = (share / steps).sum()
    return {
        name: value + effective * total * (by_step[name] - value) if name in trained else average[name]
        for name, value in weights.items()
    }


def normaliser(examples: Tensor, recipe: Recipe) -> Tensor:
    """||a_i||_1 of clients with so many samples."""
    steps, rho = recipe.epochs * torch.ceil(examples / recipe.batch).clamp(min=1), recipe.momentum
    return (steps - rho * (1.0 - rho**steps) / (1.0 - rho)) / (1.0 - rho)


RELEASES = {Trained: Release(models=("weights",), weight="examples", single="it divides each update by its own steps")}
PROGRAMS = {Train: train}
