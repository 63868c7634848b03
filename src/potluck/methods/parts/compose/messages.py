"""What a composed method sends, and what a client keeps. One task serves all parts; what none uses is empty."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from potluck.fleet import Params
from potluck.learn import Recipe
from potluck.methods.parts.echopfl.feedback import ClassCounts
from potluck.methods.parts.selection import Rule


def _none() -> Tensor:
    return torch.zeros(0)


@dataclass(frozen=True)
class How:
    """The local part, as the client needs it."""

    part: str = "all"
    rule: Rule | None = None  # select
    mu: float = 0.0  # proximal
    head_epochs: int = 0  # head
    weight: float = 0.0  # distil
    tau: float = 1.0


@dataclass(frozen=True)
class Legs:
    """How a task is divided, and what is counted on the way (on-arrival clusters); none: the task is one piece."""

    of: int = 0  # legs of an epoch
    counted: int = 0  # legs in which all samples are counted once, for the feedback
    on_arrival: str = "rebase"
    feedback: str = "errors"


@dataclass(frozen=True)
class Towards:
    """The pull of a learned relation: the gradient of alpha |w|^2 - z.w, scaled to the client's steps by `coupling`."""

    on: bool = False
    z: Params = field(default_factory=dict)
    alpha: float = 0.0
    coupling: float = 0.0
    lr_decay: float = 1.0


@dataclass(frozen=True)
class Train:
    """Server to client: a model at the client's width, without the layers that it keeps once it has them."""

    weights: Params  # with `choices`, each tensor has the groups as its first axis
    version: Tensor  # of the model: two numbers that the update repeats
    recipe: Recipe  # of the task, or of one leg
    private: tuple[str, ...] = ()  # tensors that stay on the client
    how: How = How()
    legs: Legs = Legs()
    last_layer: bool = False  # train the last layer only
    choices: int = 0
    changes: bool = False  # send the change, not the model
    keeps: bool = False  # the client uses its own model, so it keeps all of it
    towards: Towards = Towards()


@dataclass(frozen=True)
class Trained:
    """Client to server."""

    weights: Params  # the shared layers after training, or their change
    version: Tensor
    examples: Tensor
    feedback: Tensor = field(default_factory=_none)  # clusters: how well the model that was sent fits
    loss: Tensor = field(default_factory=_none)  # relation: on the training samples
    group: Tensor = field(default_factory=_none)  # choice: the model taken


@dataclass(frozen=True)
class Change(Trained):
    """The same, where `weights` is no newer form of what the task has under that name: a change, or a model chosen."""

    BOUNDED: ClassVar[dict[str, str]] = {"weights": ""}


@dataclass(frozen=True)
class Note:
    """Server to clients at work: the newest model of their cluster, at their width."""

    weights: Params
    version: Tensor
    last_layer: bool = False


@dataclass(frozen=True)
class Carry:
    """What a client keeps from leg to leg."""

    weights: Params
    base: Params
    version: Tensor
    leg: Tensor
    key: Tensor  # of the task: the order of the samples holds for a whole epoch
    counts: ClassCounts
    keep: Tensor  # 0/1: the samples that selection left; empty without selection
    last_layer: bool = False


@dataclass(frozen=True)
class Kept:
    """Private state: the client's own layers, or its whole model."""

    weights: Params
    steps: Tensor  # local steps so far, for the decay of the learning rate under a relation


@dataclass(frozen=True)
class Bind:
    """Server to client: the common direction and length of the gradients of one layer; first also a model."""

    weights: Params
    direction: Tensor
    length: Tensor
    layer: str
    lambda_d: float
    lambda_m: float
    recipe: Recipe
    how: How = How()


@dataclass(frozen=True)
class Turned:
    """Client to server: the mean gradient of one layer."""

    gradient: Tensor
    examples: Tensor
