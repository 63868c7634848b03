"""BalanceFL: each client trains as if it had all classes equally often, and learns absent ones from a teacher.

Shuai et al., "BalanceFL: Addressing Class Imbalance in Long-Tail Federated Learning", IPSN 2022. FedAvg whose clients
balance themselves: each class that a client has weighs the same in its loss (the expectation of balanced sampling,
without its noise). Distillation keeps what the shared model knows about the classes that the client does not have.
Deviation: no feature-level augmentation of rare classes; FedCFC (section 5.3) compares with the other two parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from potluck.fleet import Data, Done, Fleet, Local, Params
from potluck.learn import Recipe, fit
from potluck.methods.fedavg import State, Trained, averaged, shared, start
from potluck.methods.parts import checks
from potluck.methods.parts.merge import MEAN, Merge
from potluck.methods.parts.starts import PRETRAINS, Pretrain, pretrained
from potluck.release import Release
from potluck.spaces import Range, Space

__all__ = ["PRETRAINS", "PROGRAMS", "Config", "State", "Train", "Trained", "server", "shared", "start"]


@dataclass(frozen=True)
class Config:
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
    distil: float
    temperature: float
    recipe: Recipe


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    if cfg.pretrain.epochs and not state.round:
        state = State(pretrained(fleet, state.weights, cfg.pretrain, cfg.recipe, cfg.seed))
    while True:
        task = Train(state.weights, cfg.distil, cfg.temperature, cfg.recipe)
        weights = averaged(fleet, task, state.weights, cfg.cohort, cfg.seed, state.round, merge=cfg.merge)
        state = State(weights, state.round + 1)
        yield state


def train(task: Train, local: Local) -> Done:
    model, data = local.model, local.data
    rows = F.one_hot(data.y, model.classes).float() * data.weight.unsqueeze(1)
    count = rows.sum(0)
    here = (count > 0).float()
    # A client has N samples in k classes. A sample of a class with n samples weighs N / (k n), so the mean is 1.
    share = here * count.sum() / (here.sum().clamp_min(1.0) * count.clamp_min(1.0))

    def loss(weights: Params, batch: Data, key: Tensor) -> tuple[Tensor, Params]:
        given = {"t": batch.t, "length": batch.length}
        logits, buffers = model.train_logits(weights, batch.x, weight=batch.weight, key=key, **given)
        teacher = model.logits(task.weights, batch.x, **given)
        kept = absent_divergence(teacher, logits, 1.0 - here, task.temperature)
        each = model.losses(logits, batch.y) * share[batch.y] + task.distil * kept
        return (each * batch.weight).sum() / batch.weight.sum().clamp_min(1.0), buffers

    weights = fit(model, task.weights, data, task.recipe, key=local.key, loss=loss)
    return Done(Trained(weights, data.weight.sum()), own=weights)


def absent_divergence(teacher: Tensor, student: Tensor, absent: Tensor, temperature: float) -> Tensor:
    """KL divergence of the teacher from the student over the classes that the client does not have; 0 if it has all."""
    hidden = torch.where(absent > 0, 0.0, -1e9)
    said = F.log_softmax(teacher.detach() / temperature + hidden, -1)
    says = F.log_softmax(student / temperature + hidden, -1)
    return (said.exp() * (said - says) * absent).sum(-1) * temperature**2


CLASSES = "it balances the loss of a client over its classes, and keeps those that the client lacks"
RELEASES = {Trained: Release(models=("weights",), weight="examples")}
PROGRAMS = {Train: train}
