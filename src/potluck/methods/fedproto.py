"""FedProto: clients exchange the mean features of each class, and no weights at all.

Tan et al., "FedProto: Federated Prototype Learning across Heterogeneous Clients", AAAI 2022, Algorithm 1. A client
sends its prototypes, the mean features of its samples of each class (eq. 3). The server takes their mean by class,
weighted by samples (eq. 6). The loss of a sample is cross-entropy + lambda d(features, prototype of its class) (eq. 7),
with the mean squared difference as d, as in the released code. A client answers with the class of the nearest prototype
(eq. 8).
Deviation: none. The nearest prototype is a linear layer: 2 c_j as weights, -||c_j||² as bias.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from potluck.errors import BadInput, Code
from potluck.fleet import ClientId, Data, Done, Fleet, Local, Params
from potluck.learn import Recipe, fit
from potluck.methods.parts import checks
from potluck.methods.parts.cohort import sample
from potluck.methods.parts.features import Features
from potluck.spaces import Choice, Range, Space

UNKNOWN = -1e6  # bias of a class that no client has: never the nearest


@dataclass(frozen=True)
class Config:
    lam: float = 1.0  # lambda: weight of the distance to the prototype
    infer: Literal["prototypes", "head"] = "prototypes"  # head: the client's own last layer answers
    recipe: Recipe = Recipe(epochs=2)
    cohort: int = 0  # clients per round; 0: all
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        checks.at_least(self, "lam", 0.0)
        checks.one_of(self, "infer", ("prototypes", "head"))


SPACE: Space = {
    "recipe.lr": Range(0.005, 0.5, log=True),
    "lam": Choice(0.1, 1.0, 10.0),
    "infer": Choice("prototypes", "head"),
}


@dataclass(frozen=True)
class State:
    prototypes: Tensor  # C classes x F features; empty before the first round
    known: Tensor  # 1 for a class that some client has
    last: str = ""  # the layer that prototypes answer for; empty where it stays a client's own
    round: int = 0


@dataclass(frozen=True)
class Mine:
    weights: Params  # never leave the client


@dataclass(frozen=True)
class Train:
    """Server to client."""

    prototypes: Tensor
    known: Tensor
    lam: float
    recipe: Recipe


@dataclass(frozen=True)
class Trained:
    """Client to server."""

    BOUNDED: ClassVar[dict[str, str]] = {"prototypes": ""}
    prototypes: Tensor  # C x F; zero for classes that the client does not have
    examples: Tensor  # samples of each class


def start(weights: Params, cfg: Config) -> State:
    return State(torch.zeros(0, 0), torch.zeros(0))


def private(weights: Params, cfg: Config) -> Mine:
    return Mine(weights)


def check(cfg: Config, home: Local) -> None:
    Features.of(home.model, home.data)
    last = home.model.layers()[-1]
    if cfg.infer == "prototypes" and not {f"{last}.weight", f"{last}.bias"} <= home.model.trainable:
        raise BadInput(
            Code.METHOD_NEEDS, f"infer: must be head, because the last layer of {home.model.name} is not linear."
        )


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    model = fleet.home.model
    last = model.layers()[-1] if cfg.infer == "prototypes" else ""
    while True:
        prototypes, known = state.prototypes, state.known
        if not len(known):
            width = model.init(0)[f"{model.layers()[-1]}.weight"].shape[1]
            prototypes, known = torch.zeros(model.classes, width), torch.zeros(model.classes)
        task = Train(prototypes, known, cfg.lam, cfg.recipe)
        chosen = sample(fleet, cfg.cohort, cfg.seed, state.round)
        updates = [arrival.update for arrival in fleet.gather({client: task for client in chosen})]
        if updates:
            prototypes, known = merged(prototypes, known, updates)
        state = State(prototypes, known, last, state.round + 1)
        yield state


def merged(prototypes: Tensor, known: Tensor, updates: list[Trained]) -> tuple[Tensor, Tensor]:
    """Eq. (6): the mean of each class over its samples. A class that nobody reported keeps its prototype."""
    counts = torch.stack([update.examples for update in updates])  # clients x C
    sums = torch.einsum("kc,kcf->cf", counts, torch.stack([update.prototypes for update in updates]))
    total = counts.sum(0)
    new = torch.where((total > 0)[:, None], sums / total.clamp_min(1.0)[:, None], prototypes)
    return new, torch.maximum(known, (total > 0).float())


def train(task: Train, local: Local) -> Done:
    model, data = local.model, local.data
    features = Features.of(model, data)

    def loss(weights: Params, batch: Data, key: Tensor) -> tuple[Tensor, Params]:
        z, logits, buffers = features.train(weights, batch, key)
        apart = (z - task.prototypes[batch.y]).square().mean(-1) * task.known[batch.y]
        losses = model.losses(logits, batch.y) + task.lam * apart  # eq. (7)
        return (losses * batch.weight).sum() / batch.weight.sum().clamp_min(1.0), buffers

    weights = fit(model, local.mine.weights, data, task.recipe, key=local.key, loss=loss)
    member = F.one_hot(data.y, model.classes).float() * data.weight[:, None]  # n x C
    counts = member.sum(0)
    means = member.T @ features.plain(weights, data) / counts.clamp_min(1.0)[:, None]  # eq. (3)
    return Done(Trained(means, counts), mine=Mine(weights), own=weights)


CLASSES = "clients share one prototype for each class"
RELEASES = "prototypes are weighed class by class"
PROGRAMS = {Train: train}


VISIBLE = ("prototypes", "known", "last")  # means of all clients


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    """The client's model; its last layer answers by the nearest prototype (eq. 8)."""
    if not state.last:
        return mine.weights
    bias = torch.where(state.known > 0, -state.prototypes.square().sum(1), UNKNOWN)
    return mine.weights | {f"{state.last}.weight": 2.0 * state.prototypes, f"{state.last}.bias": bias}
