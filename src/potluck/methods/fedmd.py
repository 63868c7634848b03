"""FedMD: clients of any width agree on the scores of public samples, and learn from that agreement.

Li and Wang, "FedMD: Heterogenous Federated Learning via Model Distillation", 2019, Algorithm 1. The public samples
are the server's rows; each client is given them once. A client first trains on the public and then on its own
samples; from then on a round is: communicate scores, aggregate their mean, digest it on the public samples (mean
absolute difference), and revisit one's own. Deviation: all public samples are used in every round, not a subset.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from potluck import keys
from potluck.errors import BadInput, Code
from potluck.fleet import ClientId, Data, Done, Fleet, Local, Params
from potluck.learn import Recipe, fit
from potluck.methods.parts import checks
from potluck.methods.parts.cohort import sample
from potluck.methods.parts.submodels.train import Dealt
from potluck.methods.parts.submodels.widths import cut, dealt, leading, plan_of


@dataclass(frozen=True)
class Config(Dealt):  # epochs are of one's own samples
    public_epochs: int = 5  # of the public samples, once, before one's own
    digest_epochs: int = 1  # of the agreement on them, in every later round

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.at_least(self, "public_epochs", 0)
        checks.at_least(self, "digest_epochs", 0)


@dataclass(frozen=True)
class State:
    first: Params  # what everybody's sub-model is cut from
    consensus: Tensor | None = None  # (public samples, classes)
    round: int = 0
    known: dict[ClientId, float] = field(default_factory=dict)  # who has the public samples, and its width


@dataclass(frozen=True)
class Begin:
    """Server to client, once: a model and the public samples."""

    weights: Params
    x: Tensor
    y: Tensor
    public_epochs: int
    recipe: Recipe


@dataclass(frozen=True)
class Digest:
    """Server to client: what everybody together thinks of the public samples."""

    scores: Tensor
    digest_epochs: int
    recipe: Recipe


@dataclass(frozen=True)
class Scored:
    """Client to server: what I think of them."""

    scores: Tensor
    examples: Tensor


@dataclass(frozen=True)
class Mine:
    weights: Params
    x: Tensor | None = None


def start(weights: Params, cfg: Config) -> State:
    return State(weights)


def private(weights: Params, cfg: Config) -> Mine:
    return Mine({})


def check(cfg: Config, home: Local) -> None:
    plan_of(home.model)
    if not home.data.weight.shape[0]:
        raise BadInput(
            Code.METHOD_NEEDS,
            "server.share: 0 given, fedmd needs public samples at the server: a share above 0 is allowed.",
        )


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    plan, public = plan_of(fleet.home.model), fleet.home.data
    width_of = dealt(fleet.clients, cfg.widths, cfg.shares, cfg.seed)
    begin = {
        width: Begin(cut(state.first, plan, leading(plan, width)), public.x, public.y, cfg.public_epochs, cfg.recipe)
        for width in cfg.widths
    }
    while True:
        chosen = sample(fleet, cfg.cohort, cfg.seed, state.round)
        tasks: dict[ClientId, Begin | Digest] = {client: begin[width_of[client]] for client in chosen}
        if state.consensus is not None:
            digest = Digest(state.consensus, cfg.digest_epochs, cfg.recipe)
            tasks |= {client: digest for client in chosen if client in state.known}
        arrivals = fleet.gather(tasks)
        consensus = torch.stack([a.update.scores for a in arrivals]).mean(0) if arrivals else state.consensus
        known = state.known | {a.client: width_of[a.client] for a in arrivals}
        state = State(state.first, consensus, state.round + 1, known)
        yield state


def begin(task: Begin, local: Local) -> Done:
    public = Data(task.x, task.y, torch.ones(task.x.shape[0]))
    weights = task.weights
    if task.public_epochs:
        recipe = replace(task.recipe, epochs=task.public_epochs)
        weights = fit(local.model, weights, public, recipe, key=keys.fold(local.key, "public"))
    return _revisited(task, local, weights, task.x)


def digest(task: Digest, local: Local) -> Done:
    mine: Mine = local.mine
    assert mine.x is not None  # whoever digests has begun
    agreed = Data(mine.x, task.scores, torch.ones(mine.x.shape[0]))

    def apart(weights: Params, batch: Data, key: Tensor) -> tuple[Tensor, Params]:
        logits, buffers = local.model.train_logits(weights, batch.x, weight=batch.weight, key=key)
        differences = (logits - batch.y).abs().mean(-1) * batch.weight
        return differences.sum() / batch.weight.sum().clamp_min(1.0), buffers

    weights = mine.weights
    if task.digest_epochs:
        recipe = replace(task.recipe, epochs=task.digest_epochs)
        weights = fit(local.model, weights, agreed, recipe, key=keys.fold(local.key, "digest"), loss=apart)
    return _revisited(task, local, weights, mine.x)


def _revisited(task: Begin | Digest, local: Local, weights: Params, x: Tensor) -> Done:
    weights = fit(local.model, weights, local.data, task.recipe, key=local.key)
    return Done(Scored(local.model.logits(weights, x), local.data.weight.sum()), mine=Mine(weights, x))


PROGRAMS = {Begin: begin, Digest: digest}


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    return mine.weights or state.first


def record(state: State) -> dict[str, Any]:
    return {"widths": state.known}
