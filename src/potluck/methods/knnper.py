"""kNN-Per: FedAvg's model and a memory on each client; the answer mixes the model's with that of near samples.

Marfoq et al., "Personalized Federated Learning through Local Memorization", ICML 2022, Algorithm 1. A client remembers
the features (the input of the last layer) of its own samples. For x it looks up the k nearest ones and answers with

    lambda kNN(y | x) + (1 - lambda) p(y | x)

kNN(y | x) is proportional to the sum of exp(-d) over the neighbours of class y. The squared distance, divided by the
number of features and by `scale`, is d, as in the released code.
Deviations: each client chooses its lambda, on validation rows where it has some, otherwise leaving out one remembered
sample at a time (the released code shows the best value for test rows). The memory belongs to the model that the client
last received, so after the last round it is one round old. It holds at most `memory` samples, evenly spaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from potluck.fleet import ClientId, Data, Done, Fleet, Local, Params
from potluck.learn import Recipe, fit
from potluck.methods.fedavg import State, Trained, averaged, shared, start
from potluck.methods.parts import checks
from potluck.methods.parts.features import Features
from potluck.methods.parts.merge import MEAN, Merge
from potluck.models import Model
from potluck.release import Release
from potluck.spaces import Choice, Range, Space

__all__ = [
    "ANSWER", "PROGRAMS", "RELEASES", "Config", "Mine", "State", "Train", "Trained", "check", "personal", "private",
    "server", "shared", "start",
]  # fmt: skip

GRID = torch.linspace(0.0, 1.0, 11)  # the lambdas that a client may choose
PREFIX = "memory."  # begins the names of a memory's tensors in a personal model
FAR, TINY = 1e6, 1e-9  # a distance that no neighbour has; a probability that is not zero


@dataclass(frozen=True)
class Config:
    neighbours: int = 10  # k
    scale: float = 1.0  # of distances: a larger one makes all neighbours count more alike
    memory: int = 512  # samples that a client remembers at most
    recipe: Recipe = Recipe(epochs=2)
    cohort: int = 0  # clients per round; 0: all
    merge: Merge = MEAN  # how the server combines models
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        checks.at_least(self, "neighbours", 1)
        checks.at_least(self, "memory", 2)
        checks.above(self, "scale", 0.0)


SPACE: Space = {
    "recipe.lr": Range(0.005, 0.5, log=True),
    "neighbours": Choice(5, 10, 20),
    "scale": Choice(0.1, 1.0, 10.0),
}


@dataclass(frozen=True)
class Mine:
    weights: Params  # the model received last
    memory: Params  # features (n x F), labels (n x C, zero for no sample), k, scale and lambda


@dataclass(frozen=True)
class Train:
    """Server to client."""

    weights: Params
    neighbours: int
    scale: float
    memory: int
    recipe: Recipe


def private(weights: Params, cfg: Config) -> Mine:
    return Mine(weights, {})


def check(cfg: Config, home: Local) -> None:
    checks.probabilities(home)
    Features.of(home.model, home.data)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    while True:
        task = Train(state.weights, cfg.neighbours, cfg.scale, cfg.memory, cfg.recipe)
        weights = averaged(fleet, task, state.weights, cfg.cohort, cfg.seed, state.round, merge=cfg.merge)
        state = State(weights, state.round + 1)
        yield state


def train(task: Train, local: Local) -> Done:
    weights = fit(local.model, task.weights, local.data, task.recipe, key=local.key)
    memory = remembered(task, local)
    return Done(Trained(weights, local.data.weight.sum()), mine=Mine(task.weights, memory), own=weights)


def remembered(task: Train, local: Local) -> Params:
    """The memory of a client: its samples by their features under the model received, and its lambda."""
    model, data, find = local.model, local.data, Features.of(local.model, local.data)
    places = torch.arange(task.memory)
    every = (data.weight.sum() / task.memory).clamp_min(1.0)
    rows = (places * every).long().clamp_max(len(data.y) - 1)
    there = data.weight[rows] * (places < data.weight.sum())
    features, logits = find.plain_with_logits(task.weights, data)
    labels = F.one_hot(data.y[rows], model.classes) * there[:, None]
    memory = {
        "features": features[rows] * there[:, None],
        "labels": labels,
        "neighbours": torch.tensor(task.neighbours),
        "scale": torch.tensor(task.scale),
    }
    if local.valid is None:
        near = said_by_neighbours(memory, memory["features"], torch.eye(task.memory))
        return memory | {"lam": likeliest(near, logits[rows], labels)}
    features, logits = find.plain_with_logits(task.weights, local.valid)
    right = F.one_hot(local.valid.y, model.classes) * local.valid.weight[:, None]
    return memory | {"lam": likeliest(said_by_neighbours(memory, features), logits, right)}


def said_by_neighbours(memory: Params, features: Tensor, without: Tensor | None = None) -> Tensor:
    """kNN(y | x) for samples with these features (n x C); all zero without a memory.

    `without` (n x remembered samples) is 1 for a sample that must not be its own neighbour.
    """
    kept = memory["features"]
    apart = features.square().sum(-1)[:, None] + kept.square().sum(-1) - 2.0 * features @ kept.T
    distance = apart.clamp_min(0.0) / (features.shape[-1] * memory["scale"])
    absent = 1.0 - memory["labels"].sum(-1)
    distance = distance + FAR * (
        absent if without is None else torch.maximum(absent.expand(len(features), -1), without)
    )
    ranked = distance.sort(-1).values
    last = (memory["neighbours"] - 1).clamp_max(ranked.shape[-1] - 1)
    nearest = distance <= ranked.index_select(-1, last[None])
    votes = (torch.exp(ranked[:, :1] - distance) * nearest) @ memory["labels"]  # relative to the nearest one
    return votes / votes.sum(-1, keepdim=True).clamp_min(TINY)


def likeliest(near: Tensor, logits: Tensor, right: Tensor) -> Tensor:
    """The lambda of the grid that gives these labels (n x C, zero for no sample) the highest likelihood."""
    one, other = ((part * right).sum(-1) for part in (near, logits.softmax(-1)))
    mixed = GRID[:, None] * one + (1.0 - GRID[:, None]) * other
    return GRID[((mixed.clamp_min(TINY)).log() * right.sum(-1)).sum(-1).argmax()]


CLASSES = "it mixes the probabilities of classes with the classes of near samples"
RELEASES = {Trained: Release(models=("weights",), weight="examples")}
PROGRAMS = {Train: train}


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    return mine.weights | {PREFIX + name: value for name, value in mine.memory.items()}


def answer(
    model: Model, weights: Params, x: Tensor, *, t: Tensor | None = None, length: Tensor | None = None
) -> Tensor:
    """lambda kNN(y | x) + (1 - lambda) p(y | x), as logarithms; a model without a memory answers by itself."""
    plain = {name: value for name, value in weights.items() if not name.startswith(PREFIX)}
    if len(plain) == len(weights):
        return model.logits(plain, x, t=t, length=length)
    memory = {name.removeprefix(PREFIX): value for name, value in weights.items() if name.startswith(PREFIX)}
    blank = torch.zeros(x.shape[0])
    rows = Data(x, blank, blank, t, length)
    features, logits = Features.of(model, rows).plain_with_logits(plain, rows)
    near, lam = said_by_neighbours(memory, features), memory["lam"]
    return (lam * near + (1.0 - lam) * logits.softmax(-1)).clamp_min(TINY).log()


ANSWER = answer
