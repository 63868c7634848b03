"""HeteroFL: clients train the leading channels of the global model; the server averages each weight over its clients.

Diao et al., "HeteroFL: Computation and Communication Efficient Federated Learning for Heterogeneous Clients", ICLR
2021, Algorithm 1, equations (1) to (3), and its three remedies: the scaler divides hidden activations by the width in
training; batch norms train on batch statistics, and the server then asks the clients for those of its model; a client
leaves the classes it does not have out of its softmax. `label_rows` averages a class's row of the last layer over the
clients that have the class, as released: the server learns who has which class, so privacy and secure sums need it off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from potluck.fleet import ClientId, Data, Done, Fleet, Local, Params
from potluck.learn import Recipe, mean_loss
from potluck.methods.parts.cohort import sample
from potluck.methods.parts.submodels.figures import record
from potluck.methods.parts.submodels.fitting import FITTED, Slices
from potluck.methods.parts.submodels.train import (
    Given,
    Mine,
    Train,
    Trained,
    personal,
    private,
    received,
    train,
    trained,
)
from potluck.methods.parts.submodels.widths import Indices, Plan, check, cut, leading, merged, plan_of
from potluck.models.layers import BatchNorm
from potluck.release import Release
from potluck.spaces import Choice, Range, Space

__all__ = ["Mine", "Recipe", "Trained", "check", "personal", "private", "received", "record"]  # of the parts
KEY_SETTINGS = ("sizes.widths", "sizes.shares", "recipe.lr", "masked")
NEEDS = FITTED


@dataclass(frozen=True)
class Config(Slices):  # sizes, recipe, cohort, seed
    masked: bool = True  # leave the classes that a client does not have out of its softmax
    scaler: bool = True  # divide hidden activations by the width in training
    static_norm: bool = True  # batch norms train on batch statistics; the server asks for its model's own
    label_rows: bool = False  # average a class's row of the last layer over the clients that have the class


SPACE: Space = {"recipe.lr": Range(1e-4, 1e-2, log=True), "masked": Choice(False, True)}


@dataclass(frozen=True)
class State:
    weights: Params
    round: int = 0
    known: dict[ClientId, float] = field(default_factory=dict)  # clients that have answered, and their widths
    given: Given = field(default_factory=Given)


@dataclass(frozen=True)
class Shaped(Train):
    """Server to client: train as HeteroFL does."""

    masked: bool = False
    scale: float = 1.0  # of hidden activations, 1 / width
    still: bool = False  # keep the statistics of batch norms
    tell: bool = False  # which classes the client has


@dataclass(frozen=True)
class Labelled:
    """Client to server: as `Trained`, and the classes it has."""

    weights: Params
    examples: Tensor
    present: Tensor


@dataclass(frozen=True)
class Measure:
    """Server to client: a sub-model whose batch norms lack statistics."""

    weights: Params


@dataclass(frozen=True)
class Measured:
    """Client to server: the statistics of its samples."""

    statistics: Params
    examples: Tensor


def start(weights: Params, cfg: Config) -> State:
    return State(weights)


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    model, plan = fleet.home.model, plan_of(fleet.home.model)
    width_of = cfg.sizes.fitted(fleet, state.weights, cfg.recipe, cfg.seed)
    part = {width: leading(plan, width) for width in cfg.sizes.widths}
    still = cfg.static_norm and any(name not in model.trainable for name in state.weights)

    def given(weights: Params) -> Given:
        """eq. (1): W_l^p = W_g[:d_p, :k_p]"""
        return Given(dict(width_of), {str(width): cut(weights, plan, own) for width, own in part.items()})

    def task(width: float) -> Train:
        sub, scale = state.given.models[str(width)], 1.0 / width if cfg.scaler else 1.0
        if not (cfg.masked or still or cfg.label_rows or scale != 1.0):
            return Train(sub, cfg.recipe)
        return Shaped(sub, cfg.recipe, masked=cfg.masked, scale=scale, still=still, tell=cfg.label_rows)

    state = replace(state, given=given(state.weights))
    while True:
        tasks = {width: task(width) for width in part}
        chosen = sample(fleet, cfg.cohort, cfg.seed, state.round)
        arrivals = fleet.gather({client: tasks[width_of[client]] for client in chosen})
        # eq. (2) and (3): the mean over the clients that hold an entry
        weights = merged(state.weights, plan, [(a.update.weights, part[width_of[a.client]], 1.0) for a in arrivals])
        if cfg.label_rows:
            weights |= _rows(state.weights, plan, [(a.update, part[width_of[a.client]]) for a in arrivals])
        if still:
            sent = {width: Measure(sub) for width, sub in ((w, cut(weights, plan, own)) for w, own in part.items())}
            told = fleet.gather({a.client: sent[width_of[a.client]] for a in arrivals})
            found = [(a.update.statistics, part[width_of[a.client]], a.update.examples) for a in told]
            names = {name: value for name, value in weights.items() if name not in model.trainable}
            weights |= merged(names, plan, found)
        known = state.known | {a.client: width_of[a.client] for a in arrivals}
        state = State(weights, state.round + 1, known, given(weights))
        yield state


def _rows(weights: Params, plan: Plan, updates: list[tuple[Labelled, Indices]]) -> Params:
    """The last layer: each class's row is the mean over the clients that have the class."""
    last = {name: value for name, value in weights.items() if value.dim() and plan.axes[name][0].group is None}
    out: Params = {}
    for name, value in last.items():
        shape = (-1, *(1,) * (value.dim() - 1))
        out |= merged({name: value}, plan, [(one.weights, where, one.present.reshape(shape)) for one, where in updates])
    return out


def train_shaped(task: Shaped, local: Local) -> Done:
    model = local.model
    classes = model.task.has_classes and not getattr(model.task, "unlabelled", False)
    hidden = _hidden(plan_of(model))
    present = torch.ones(model.classes if classes else 0)
    if classes:
        present = ((F.one_hot(local.data.y, model.classes) * local.data.weight[:, None]).sum(0) > 0).float()

    def loss(weights: Params, batch: Data, key: Tensor) -> tuple[Tensor, Params]:
        scaled = {name: value * task.scale if name in hidden else value for name, value in weights.items()}
        if not (classes and task.masked):
            value, buffers = mean_loss(model, scaled, batch, key)
        else:
            logits, buffers = model.train_logits(
                scaled, batch.x, weight=batch.weight, key=key, t=batch.t, length=batch.length
            )
            logits = torch.where(present > 0, logits, torch.full_like(logits, -1e9))
            losses = model.losses(logits, batch.y) * batch.weight
            value = losses.sum() / batch.weight.sum().clamp_min(1.0)
        return value, {} if task.still else buffers

    weights, examples = trained(task, local, loss), local.data.weight.sum()
    update = Labelled(weights, examples, present) if task.tell else Trained(weights, examples)
    return Done(update, mine=Mine(weights))


def _hidden(plan: Plan) -> frozenset[str]:
    """Tensors whose outputs the scaler divides: of hidden convolutions and linear layers, not of norms."""
    layers = {plan.layers[name] for name, axes in plan.axes.items() if len(axes) > 1 and axes[0].group is not None}
    return frozenset(name for name, layer in plan.layers.items() if layer in layers)


def measure(task: Measure, local: Local) -> Done:
    """The statistics of all samples under the model; the client keeps what it trained."""
    model, data = local.model, local.data
    _, changed = model.train_logits(
        task.weights, data.x, weight=data.weight, key=local.key, t=data.t, length=data.length
    )
    steps = {part.path: part.momentum for part in model.module.modules() if isinstance(part, BatchNorm)}
    whole = {
        name: task.weights[name] + (new - task.weights[name]) / steps[name.rpartition(".")[0]]
        for name, new in changed.items()
    }
    mine: Mine = local.mine
    kept = {name: whole.get(name, value) for name, value in mine.weights.items()}
    return Done(Measured(whole, data.weight.sum()), mine=Mine(kept))


def releases(cfg: Config) -> dict[type, Release] | str:
    if cfg.label_rows:
        return "the server learns which classes a client has (method.label_rows)"
    told: dict[type, Release] = {Trained: Release(models=("weights",), counts=("examples",))}  # a sum for each width
    return told | ({Measured: Release(changes=("statistics",), weight="examples")} if cfg.static_norm else {})


PROGRAMS = {Train: train, Shaped: train_shaped, Measure: measure}
HEADLINE = "own"


def shared(state: State) -> Params:
    return state.weights
