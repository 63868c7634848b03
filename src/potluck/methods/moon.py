"""MOON: a client's features stay close to those of the global model and away from those of its last local model.

Li et al., "Model-Contrastive Federated Learning", CVPR 2021, Algorithm 1 and equations (3) and (4): the loss of a
sample is cross-entropy - mu log(e^(sim(z, z_glob)/tau) / (e^(sim(z, z_glob)/tau) + e^(sim(z, z_prev)/tau))), with the
cosine as sim. Deviation: z is the input of the classifier; there is no projection head, so that all methods have one
model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from potluck.fleet import Data, Done, Fleet, Local, Params
from potluck.learn import Recipe, fit
from potluck.methods.fedavg import State, Trained, averaged, shared, start
from potluck.methods.parts import checks
from potluck.methods.parts.features import Features
from potluck.methods.parts.merge import MEAN, Merge
from potluck.release import Release
from potluck.spaces import Choice, Range, Space

__all__ = ["PROGRAMS", "Config", "Mine", "State", "Train", "Trained", "private", "server", "shared", "start", "train"]


@dataclass(frozen=True)
class Config:
    mu: float = 1.0  # weight of the contrastive loss
    temperature: float = 0.5  # tau
    recipe: Recipe = Recipe(epochs=2)
    cohort: int = 0  # clients per round; 0: all
    merge: Merge = MEAN  # how the server combines models
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        checks.at_least(self, "mu", 0.0)
        checks.above(self, "temperature", 0.0)


SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True), "mu": Choice(0.1, 1.0, 5.0)}


@dataclass(frozen=True)
class Mine:
    weights: Params  # the client's last local model


@dataclass(frozen=True)
class Train:
    """Server to client."""

    weights: Params
    mu: float
    temperature: float
    recipe: Recipe


def private(weights: Params, cfg: Config) -> Mine:
    return Mine(weights)


def check(cfg: Config, home: Local) -> None:
    Features.of(home.model, home.data)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        task = Train(state.weights, cfg.mu, cfg.temperature, cfg.recipe)
        weights = averaged(fleet, task, state.weights, cfg.cohort, cfg.seed, state.round, merge=cfg.merge)
        state = State(weights, state.round + 1)
        yield state


def train(task: Train, local: Local) -> Done:
    model, before = local.model, local.mine.weights
    features = Features.of(model, local.data)

    def loss(weights: Params, batch: Data, key: Tensor) -> tuple[Tensor, Params]:
        z, logits, buffers = features.train(weights, batch, key)
        same = F.cosine_similarity(z, features.plain(task.weights, batch).detach(), dim=-1) / task.temperature
        past = F.cosine_similarity(z, features.plain(before, batch).detach(), dim=-1) / task.temperature
        apart = torch.logaddexp(same, past) - same  # eq. (3)
        losses = model.losses(logits, batch.y) + task.mu * apart  # eq. (4)
        return (losses * batch.weight).sum() / batch.weight.sum().clamp_min(1.0), buffers

    weights = fit(model, task.weights, local.data, task.recipe, key=local.key, loss=loss)
    return Done(Trained(weights, local.data.weight.sum()), mine=Mine(weights), own=weights)


RELEASES = {Trained: Release(models=("weights",), weight="examples")}
PROGRAMS = {Train: train}
