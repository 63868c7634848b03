"""FedMD: clients of any width agree on the scores of public samples, and learn from that agreement.

Li and Wang, "FedMD: Heterogenous Federated Learning via Model Distillation", 2019, Algorithm 1. The public samples are
the server rows; each client receives them once. A client first trains on the public samples and then on its own. From
then on a round is: communicate scores, aggregate their mean, digest it on the public samples (mean absolute
difference), and revisit the client's own samples.
Deviation: the paper draws a subset of the public samples in each round. Here `public_rows` draws one for all rounds;
by default all samples are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from potluck import keys
from potluck.fleet import ClientId, Data, Done, Fleet, Local, Params
from potluck.learn import Loss, Recipe, fit
from potluck.methods.parts import checks
from potluck.methods.parts.cohort import sample
from potluck.methods.parts.submodels import widths
from potluck.methods.parts.submodels.figures import record
from potluck.methods.parts.submodels.fitting import FITTED, Slices
from potluck.methods.parts.submodels.tuning import need_rows
from potluck.needs import SERVER_ROWS, SERVER_SHARE
from potluck.release import Release
from potluck.spaces import Choice, Range, Space

__all__ = ["record"]  # of the parts
KEY_SETTINGS = ("sizes.widths", "recipe.lr", "public_epochs", "digest_epochs")
NEEDS = {"server.share": SERVER_SHARE, **FITTED}
USES = (SERVER_ROWS,)


@dataclass(frozen=True)
class Config(Slices):  # sizes, recipe, cohort, seed; the recipe's epochs are of a client's own samples
    public_epochs: int = 5  # of the public samples, once, before the client's own
    digest_epochs: int = 1  # of the agreement on them, in every later round
    public_rows: int = 0  # so many of the server rows are the public samples, drawn once by the seed; 0: all

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("public_epochs", "digest_epochs", "public_rows"):
            checks.at_least(self, name, 0)


SPACE: Space = {"recipe.lr": Range(1e-4, 1e-2, log=True), "digest_epochs": Choice(1, 2, 4)}


@dataclass(frozen=True)
class State:
    first: Params  # what the sub-models are cut from
    consensus: Tensor | None = None  # (public samples, classes)
    round: int = 0
    known: dict[ClientId, float] = field(default_factory=dict)  # clients that have the public samples, and their widths


@dataclass(frozen=True)
class Mine:
    weights: Params
    x: Tensor | None = None  # the public samples, from the first task on


@dataclass(frozen=True)
class Scored:
    BOUNDED: ClassVar[dict[str, str]] = {"scores": ""}
    scores: Tensor  # of the public samples, by the client's model
    examples: Tensor


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
    """Server to client: the mean of the clients' scores of the public samples."""

    scores: Tensor
    digest_epochs: int
    recipe: Recipe


def private(weights: Params, cfg: Config) -> Mine:
    return Mine({})


def start(weights: Params, cfg: Config) -> State:
    return State(first=weights)


def check(cfg: Config, home: Local) -> None:
    widths.check(cfg, home)
    need_rows(home, "fedmd needs public samples at the server")


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    plan, public = widths.plan_of(fleet.home.model), _public(fleet.home.data, cfg)
    width_of = cfg.sizes.fitted(fleet, state.first, cfg.recipe, cfg.seed)
    begin = {}
    for width in cfg.sizes.widths:
        sub = widths.cut(state.first, plan, widths.leading(plan, width))
        begin[width] = Begin(sub, public.x, public.y, cfg.public_epochs, cfg.recipe)
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


def _public(rows: Data, cfg: Config) -> Data:
    if not 0 < cfg.public_rows < len(rows.y):
        return rows
    drawn = np.sort(keys.rng(cfg.seed, "public samples").permutation(len(rows.y))[: cfg.public_rows])
    return Data(rows.x[drawn], rows.y[drawn], rows.weight[drawn])


def begin(task: Begin, local: Local) -> Done:
    public = Data(task.x, task.y, torch.ones(task.x.shape[0]))
    weights = _learned(task.weights, public, task.recipe, task.public_epochs, local, "public")
    return _revisited(task.recipe, local, weights, task.x)


def digest(task: Digest, local: Local) -> Done:
    mine: Mine = local.mine
    assert mine.x is not None  # a client that digests has begun
    agreed = Data(mine.x, task.scores, torch.ones(mine.x.shape[0]))

    def apart(weights: Params, batch: Data, key: Tensor) -> tuple[Tensor, Params]:
        logits, buffers = local.model.train_logits(weights, batch.x, weight=batch.weight, key=key)
        differences = (logits - batch.y).abs().mean(-1) * batch.weight
        return differences.sum() / batch.weight.sum().clamp_min(1.0), buffers

    weights = _learned(mine.weights, agreed, task.recipe, task.digest_epochs, local, "digest", apart)
    return _revisited(task.recipe, local, weights, mine.x)


def _learned(
    weights: Params, data: Data, recipe: Recipe, epochs: int, local: Local, what: str, loss: Loss | None = None
) -> Params:
    """The weights after so many epochs of the public samples, which may be none."""
    if not epochs:
        return weights
    recipe, key = replace(recipe, epochs=epochs), keys.fold(local.key, what)
    return fit(local.model, weights, data, recipe, key=key, loss=loss)


def _revisited(recipe: Recipe, local: Local, weights: Params, x: Tensor) -> Done:
    weights = fit(local.model, weights, local.data, recipe, key=local.key)
    return Done(Scored(local.model.logits(weights, x), local.data.weight.sum()), mine=Mine(weights, x))


RELEASES = {Scored: Release(changes=("scores",), counts=("examples",))}
PROGRAMS = {Begin: begin, Digest: digest}
HEADLINE = "own"


VISIBLE = ("first",)  # the same for all clients


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    return mine.weights or state.first
