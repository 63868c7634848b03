"""Training the end of a network, on samples that are chosen anew at every epoch.

Mo et al. (Centaur), section 4.3. The losses met while training are kept, so that the next choice needs no pass of its
own. The optimiser continues from epoch to epoch. One loop, `fit`, serves a device that trains the classifier behind a
frozen encoder (`FrozenEncoder`) and an access point that trains the whole network.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from potluck import keys
from potluck.fleet import Data, Local, Params
from potluck.learn import Pull, Recipe, at_least, batches, is_plain, slope_of, steps, take
from potluck.methods.parts import checks
from potluck.methods.parts.selection import Chosen, everything, gradient_norm
from potluck.models import Model
from potluck.models.layers import Pass
from potluck.models.split import Split

Objective = Callable[[Params, Data, Tensor], tuple[Tensor, Params]]  # -> each sample's loss, buffers that changed
Choose = Callable[[int, Params, Tensor, Tensor], Chosen]  # (epoch, weights now, losses now, sent) -> what to train on
AT_ONCE = 32  # samples encoded together where a simulation need not mind a device's memory
_LOSSES = "losses of this batch"  # returned with the buffers, so that no gradient is taken of them


@dataclass(frozen=True)
class Encoding:
    """How a device runs the encoder that it does not train."""

    split: str = ""  # the classifier's first layer; by default its closing linear layers
    cache: bool = True  # keep the features for the round; false: encode again at every step
    batch_norm: Literal["eval", "train"] = "eval"  # train: batch statistics drift, as in the released code
    stream: int = 4  # samples encoded at a time

    def __post_init__(self) -> None:
        checks.at_least(self, "stream", 1)


@dataclass(frozen=True)
class FrozenEncoder:
    """A network whose encoder is frozen, on one device's samples: what selection and training need of it."""

    model: Model
    how: Encoding
    split: Split
    encoder: Params
    samples: Data
    features: Tensor | None  # of all samples; None where nothing needs them

    @staticmethod
    def of(
        how: Encoding, model: Model, encoder: Params, samples: Data, selects: bool, only: Tensor | None = None
    ) -> FrozenEncoder:
        """`selects`: the losses of all samples are needed. `only`: the samples (0/1) to encode, by default all."""
        split = model.split(how.split, [name for name in ("t", "length") if getattr(samples, name) is not None])
        network = FrozenEncoder(model, how, split, encoder, samples, None)
        needed = selects or network.cached
        return replace(network, features=network._encoded(encoder, samples, only)) if needed else network

    @property
    def drifts(self) -> bool:
        return self.how.batch_norm == "train"

    @property
    def cached(self) -> bool:
        return self.how.cache and not self.drifts

    @property
    def data(self) -> Data:
        """What training sees: the samples, or their features where these are kept."""
        if self.cached and self.features is not None:
            return replace(self.samples, x=self.features, t=None, length=None)
        return self.samples

    @property
    def least(self) -> int:
        """The smallest batch: one sample has no batch statistics."""
        return 2 if self.drifts else 1

    def losses(self, classifier: Params) -> Tensor:
        """Each sample's loss with the received model; zeros where nothing needs them."""
        if self.features is None:
            return self.samples.weight * 0
        return self.model.losses(self.split.classify(classifier, self.features), self.samples.y)

    def norms(self, now: Params) -> Tensor:
        """Each sample's gradient norm in the last layer, with the weights as they are now."""
        known = self.features if self.cached else None
        known = self._encoded(now, self.samples) if known is None else known
        out = self.split.classify(now, known)
        return gradient_norm(self.model.task, out, self.samples.y, self.split.last_input(now, known))

    def objective(self, now: Params, part: Data, key: Tensor) -> tuple[Tensor, Params]:
        if self.drifts:  # the released code: batch statistics of a frozen encoder are used, and move
            return whole(self.model)(now, part, key)
        known = part.x if self.cached else self._encoded(now, part)
        return self.model.losses(self.split.classify(now, known, Pass(part.weight, key)), part.y), {}

    def buffers(self, weights: Params) -> Params:
        """The encoder's batch statistics, where they drift."""
        return {n: weights[n] for n in self.encoder if self.drifts and n not in self.model.trainable}

    def _encoded(self, encoder: Params, data: Data, only: Tensor | None = None) -> Tensor:
        return features_of(self.split, encoder, data, self.how.stream, only)


def parted(weights: Params, names: Collection[str]) -> tuple[Params, Params]:
    """The encoder E and the classifier C of a model; `names` are the weights of C."""
    classifier = {name: value for name, value in weights.items() if name in names}
    return {name: value for name, value in weights.items() if name not in names}, classifier


def whole(model: Model) -> Objective:
    """The objective of training all layers."""

    def objective(now: Params, part: Data, key: Tensor) -> tuple[Tensor, Params]:
        out, buffers = model.train_logits(now, part.x, weight=part.weight, key=key, t=part.t, length=part.length)
        return model.losses(out, part.y), buffers

    return objective


def collected(data: Data, share: float, order: Tensor) -> tuple[Data, Tensor]:
    """The samples that a device has gathered so far, a prefix of a fixed random order; and their row numbers.

    The result has room for this share of the padded rows, so that all devices of a stack have one shape.
    """
    capacity = data.weight.shape[0]
    rows = keys.permutation(order, capacity, data.weight)[: max(1, -int(-share * capacity // 1))]
    n = data.weight.sum()
    here = torch.floor(share * n + 1e-4).clamp_min(1.0).minimum(n)
    return take(data, rows, (torch.arange(len(rows)) < here).to(data.weight.dtype)), rows


def features_of(split: Split, encoder: Params, data: Data, stream: int, only: Tensor | None = None) -> Tensor:
    """The features of all samples, `stream` samples at a time, as a small device has room for.

    Each group is filled up to the same size: the kernels then give a sample the same bits in any group. With `only`
    (0/1) a device encodes these samples and has zeros for the others. A simulation encodes all: a stack has one shape.
    """
    if only is not None and is_plain():
        rows = only.nonzero()[:, 0]
        first = features_of(split, encoder, take(data, rows.new_zeros(1), data.weight[:1]), stream)
        some = features_of(split, encoder, take(data, rows, data.weight[rows]), stream) if len(rows) else first[:0]
        return first.new_zeros(data.x.shape[0], *first.shape[1:]).index_copy(0, rows, some)
    size = stream if is_plain() else AT_ONCE
    n = data.x.shape[0]
    missing = -n % size

    def filled(value: Tensor) -> Tensor:
        return torch.cat([value, value.new_zeros(missing, *value.shape[1:])]) if missing else value

    x = filled(data.x)
    extra = {name: filled(value) for name in split.given if (value := getattr(data, name)) is not None}
    parts = [
        split.encode(encoder, x[i : i + size], **{name: value[i : i + size] for name, value in extra.items()})
        for i in range(0, n + missing, size)
    ]
    return torch.cat(parts)[:n]


@dataclass(frozen=True)
class Fitted:
    """What training left."""

    weights: Params
    moving: tuple[str, ...]  # the names of those that were trained
    losses: Tensor  # of every sample, as last met
    first: Chosen  # the choice of the first epoch; without any epoch, all samples
    send: Tensor  # 0/1: chosen for the access point in any epoch
    trained: Tensor  # samples trained on, over all epochs
    steps: Tensor  # batches that changed the weights
    visited: Tensor  # 0/1: met in the last epoch


def fit(
    objective: Objective,
    frozen: Params,
    received: Params,
    data: Data,
    losses: Tensor,
    choose: Choose,
    recipe: Recipe,
    local: Local,
    *,
    more: int = 0,
    pull: Pull | None = None,
    least: int = 1,
) -> Fitted:
    """Train the received weights by SGD on the samples that `choose` keeps, chosen anew at the start of every epoch.

    `choose` also gets what earlier epochs chose for the access point. There are `more` epochs than the recipe has.
    Batches below `least` samples are left out.
    """
    weights = frozen | received
    moving = [name for name in received if name in local.model.trainable]

    def mean(now: Params, part: Data, at: Tensor) -> tuple[Tensor, Params]:
        each, buffers = objective(now, part, at)
        total = part.weight.sum().clamp_min(1.0)
        return (each * part.weight).sum() / total, {**buffers, _LOSSES: each.detach()}

    fixed = {name: value for name, value in weights.items() if name not in moving}
    values = [weights[name] for name in moving]
    velocity = [torch.zeros_like(value) for value in values]
    trained, taken = torch.zeros_like(data.weight.sum()), torch.zeros_like(data.weight.sum())
    visited, send = data.weight * 0, data.weight * 0
    first: Chosen | None = None
    for epoch in range(recipe.epochs + more):
        chosen = choose(epoch, dict(zip(moving, values, strict=True)) | fixed, losses, send)
        first = chosen if first is None else first
        send = torch.maximum(send, chosen.send)
        at = keys.fold(local.key, "epoch", epoch)
        rows, counts = batches(replace(data, weight=chosen.keep), recipe.batch, 1, at)
        counts = at_least(counts, least)
        visited = data.weight * 0
        for step, row, count in steps(rows, counts):
            slope, left = slope_of(mean, moving, values, fixed, take(data, row, count), keys.fold(at, step))
            moves = count.sum() > 0
            met = torch.where(count > 0, row, len(losses))  # padding writes past the end
            losses = _written(losses, met, left.pop(_LOSSES))
            visited = _written(visited, met, count)
            if pull is not None:
                slope = [
                    g + pull.scale * w + pull.constant(name) for g, w, name in zip(slope, values, moving, strict=True)
                ]
            velocity = [torch.where(moves, recipe.momentum * v + g, v) for v, g in zip(velocity, slope, strict=True)]
            values = [torch.where(moves, w - recipe.lr * v, w) for w, v in zip(values, velocity, strict=True)]
            fixed |= {name: torch.where(moves, new, fixed[name]) for name, new in left.items()}
            taken = taken + moves.to(taken.dtype)
        trained = trained + counts.sum()
    moved = dict(zip(moving, values, strict=True))
    result = {name: moved.get(name, fixed.get(name, value)) for name, value in weights.items()}
    return Fitted(result, tuple(moving), losses, first or everything(data.weight), send, trained, taken, visited)


def _written(values: Tensor, at: Tensor, new: Tensor) -> Tensor:
    """The values with new ones at these positions; one position past the end is dropped."""
    return torch.cat([values, values[:1]]).scatter(0, at, new)[:-1]
