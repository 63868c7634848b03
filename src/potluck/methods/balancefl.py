"""BalanceFL: each client trains as if it had all classes equally often, and learns absent ones from a teacher.

Shuai et al., "BalanceFL: Addressing Class Imbalance in Long-Tail Federated Learning", IPSN 2022. FedAvg whose clients
balance themselves. Samples are drawn with each of the client's classes equally often (`sampling = "draws"`); "weights"
weighs them instead, the expectation without the noise. Features of rare classes get noise of the spread that features
have within classes (`augment`; a sample of a class with n samples with probability 1 - n / most). Distillation keeps
what the shared model knows about the classes that the client does not have.
Deviation: `augment` is off unless asked for, since it needs a model that can be cut before its last layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from potluck import keys
from potluck.fleet import Data, Done, Fleet, Local, Params
from potluck.learn import Recipe, Rows, fit
from potluck.methods.fedavg import State, Trained, averaged, shared, start
from potluck.methods.parts import checks
from potluck.methods.parts.features import Features
from potluck.methods.parts.merge import MEAN, Merge
from potluck.methods.parts.starts import PRETRAINS, Pretrain, pretrained
from potluck.release import Release
from potluck.spaces import Range, Space

__all__ = ["PRETRAINS", "PROGRAMS", "Config", "State", "Train", "Trained", "server", "shared", "start"]


@dataclass(frozen=True)
class Config:
    sampling: Literal["draws", "weights"] = "draws"  # how classes are balanced
    augment: bool = False  # noise on the features of rare classes
    distil: float = 1.0  # weight of the distillation of absent classes
    temperature: float = 2.0  # of the distillation
    cohort: int = 0  # clients per round; 0: all
    recipe: Recipe = Recipe(clip=5.0)
    pretrain: Pretrain = Pretrain()  # on the server rows, before the first round
    merge: Merge = MEAN  # how the server combines models
    seed: int = 0
    MOVED: ClassVar[dict[str, str]] = {"pretrain": "pretrain.epochs"}

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        checks.at_least(self, "distil", 0)
        checks.above(self, "temperature", 0)


SPACE: Space = {"recipe.lr": Range(0.005, 0.5, log=True), "distil": Range(0.1, 10.0, log=True)}


@dataclass(frozen=True)
class Train:
    """Server to client."""

    weights: Params
    sampling: str
    augment: bool
    distil: float
    temperature: float
    recipe: Recipe


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    if cfg.pretrain.epochs and not state.round:
        state = State(pretrained(fleet, state.weights, cfg.pretrain, cfg.recipe, cfg.seed))
    while True:
        task = Train(state.weights, cfg.sampling, cfg.augment, cfg.distil, cfg.temperature, cfg.recipe)
        weights = averaged(fleet, task, state.weights, cfg.cohort, cfg.seed, state.round, merge=cfg.merge)
        state = State(weights, state.round + 1)
        yield state


def check(cfg: Config, home: Local) -> None:
    """Raise BadInput, before anything runs, for a model without features to augment."""
    if cfg.augment:
        Features.of(home.model, home.data)


def train(task: Train, local: Local) -> Done:
    model, data = local.model, local.data
    rows = F.one_hot(data.y, model.classes).float() * data.weight.unsqueeze(1)
    count = rows.sum(0)
    here = (count > 0).float()
    # A client has N samples in k classes. A sample of a class with n samples weighs N / (k n), so the mean is 1.
    share = here * count.sum() / (here.sum().clamp_min(1.0) * count.clamp_min(1.0))
    drawn = task.sampling == "draws"
    among = balanced(data, share, task.recipe.epochs, keys.fold(local.key, "draws")) if drawn else None
    recipe = replace(task.recipe, epochs=1) if drawn else task.recipe
    features = Features.of(model, data) if task.augment else None
    spread = within(features.plain(task.weights, data), rows) if features is not None else None
    rare = 1.0 - count / count.amax().clamp_min(1.0)

    def loss(weights: Params, batch: Data, key: Tensor) -> tuple[Tensor, Params]:
        given = {"t": batch.t, "length": batch.length}
        if features is None or spread is None:
            logits, buffers = model.train_logits(weights, batch.x, weight=batch.weight, key=key, **given)
            judged = logits
        else:
            z, logits, buffers = features.train(weights, batch, key)
            chosen = keys.bernoulli(keys.fold(key, "rare"), rare[batch.y])
            noise = keys.normal(keys.fold(key, "noise"), (batch.y.shape[0], spread.shape[0])) @ spread
            judged = features.split.classify(weights, z + chosen.unsqueeze(1) * noise)
        teacher = model.logits(task.weights, batch.x, **given)
        kept = absent_divergence(teacher, logits, 1.0 - here, task.temperature)
        balance = 1.0 if drawn else share[batch.y]
        each = model.losses(judged, batch.y) * balance + task.distil * kept
        return (each * batch.weight).sum() / batch.weight.sum().clamp_min(1.0), buffers

    weights = fit(model, task.weights, data, recipe, key=local.key, loss=loss, among=among)
    return Done(Trained(weights, data.weight.sum()), own=weights)


def balanced(data: Data, share: Tensor, epochs: int, key: Tensor) -> Rows:
    """Draws with replacement, as many as the epochs have samples: each class that the client has equally often."""
    size = data.y.shape[0]
    ends = torch.cumsum(share[data.y] * data.weight, 0)
    at = keys.uniform(key, (epochs * size,)) * ends[-1]
    places = (ends.unsqueeze(0) <= at.unsqueeze(1)).sum(1).clamp_max(size - 1)
    return Rows(places, (torch.arange(epochs * size) < epochs * data.weight.sum()).float())


def within(features: Tensor, rows: Tensor) -> Tensor:
    """A matrix R (n x F): numbers drawn from a normal distribution, times R, have the covariance within the classes."""
    count = rows.sum(0).clamp_min(1.0)
    apart = (features - rows @ ((rows.T @ features) / count.unsqueeze(1))) * rows.sum(1, keepdim=True)
    return apart / rows.sum().clamp_min(1.0).sqrt()


def absent_divergence(teacher: Tensor, student: Tensor, absent: Tensor, temperature: float) -> Tensor:
    """KL divergence of the teacher from the student over the classes that the client does not have; 0 if it has all."""
    hidden = torch.where(absent > 0, 0.0, -1e9)
    said = F.log_softmax(teacher.detach() / temperature + hidden, -1)
    says = F.log_softmax(student / temperature + hidden, -1)
    return (said.exp() * (said - says) * absent).sum(-1) * temperature**2


CLASSES = "it balances the loss of a client over its classes, and keeps those that the client lacks"
RELEASES = {Trained: Release(models=("weights",), weight="examples")}
PROGRAMS = {Train: train}
