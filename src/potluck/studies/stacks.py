"""Train several networks of one shape at once on central data: one per seed, or each on its own rows."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from potluck import keys
from potluck.data import Federation, PartitionSpec, federate
from potluck.data.dataset import Dataset
from potluck.data.federation import Part
from potluck.errors import Code, unknown
from potluck.fleet import Data, Params
from potluck.learn import adam, sgd
from potluck.models import Model

OPTIMISERS = ("sgd", "adam")
CLIP = 1.0  # largest norm of a gradient, which may explode through a hundred time steps


def rows_of(federation: Federation, part: Part, most: int, seed: int) -> Data:
    """At most this many rows of the only client of a federation."""
    x, y, t, length = (None if value is None else torch.from_numpy(value) for value in federation.materialise(0, part))
    assert x is not None
    assert y is not None
    chosen = keys.rng(seed, "study", part).permutation(len(y))[:most] if most else np.arange(len(y))
    at = torch.from_numpy(np.sort(chosen))
    return Data(x[at], y[at], torch.ones(len(at)), None if t is None else t[at], None if length is None else length[at])


def together(dataset: Dataset, seed: int, valid_share: float = 0.0) -> Federation:
    """The whole dataset as one client, split so that no recording is on both sides."""
    return federate(dataset, PartitionSpec(kind="iid", clients=1, valid_share=valid_share), "global", seed)


def stacked(weights: list[Params]) -> Params:
    return {name: torch.stack([w[name] for w in weights]) for name in weights[0]}


@torch.no_grad()
def train(
    model: Model,
    weights: Params,
    data: Data,
    *,
    seed: int,
    lr: float,
    epochs: int,
    batch: int,
    own: bool = False,
    optimiser: str = "adam",
) -> Params:
    """Train a stack of networks with balanced classes; with `own`, data has a stack of rows for each network."""
    if optimiser not in OPTIMISERS:
        raise unknown(Code.ARGUMENT, "optimiser", optimiser, OPTIMISERS)
    count = next(iter(weights.values())).shape[0]
    stack = torch.stack([keys.key(seed, "study", k) for k in range(count)])

    def one(w: Params, key: Tensor, x: Tensor, y: Tensor, weight: Tensor, more: dict[str, Tensor]) -> Params:
        rows = Data(x, y, weight, more.get("t"), more.get("length"))
        seen = torch.nn.functional.one_hot(y, model.classes).float() * weight.unsqueeze(1)
        number = seen.sum(0)
        share = number.sum() / (number.clamp_min(1.0) * (number > 0).sum())

        def loss(v: Params, some: Data, key: Tensor) -> tuple[Tensor, Params]:
            logits, buffers = model.train_logits(v, some.x, weight=some.weight, key=key, t=some.t, length=some.length)
            each = model.losses(logits, some.y) * share[some.y]
            return (each * some.weight).sum() / some.weight.sum().clamp_min(1.0), buffers

        if optimiser == "adam":
            return adam(model, w, rows, key=key, lr=lr, epochs=epochs, batch=batch, loss=loss, clip=CLIP)
        return sgd(model, w, rows, key=key, lr=lr, epochs=epochs, batch=batch, loss=loss, clip=CLIP)

    more = {name: value for name, value in (("t", data.t), ("length", data.length)) if value is not None}
    dim = 0 if own else None
    return vmap(one, in_dims=(0, 0, dim, dim, dim, dim))(weights, stack, data.x, data.y, data.weight, more)


@torch.no_grad()
def accuracies(model: Model, weights: Params, data: Data, balanced: bool = False) -> list[float]:
    """The accuracy of each network of a stack; with `balanced`, the mean over classes."""
    more = {name: value for name, value in (("t", data.t), ("length", data.length)) if value is not None}
    found = []
    for at in torch.arange(len(data.y)).split(512):  # type: ignore[no-untyped-call]
        part = {name: value[at] for name, value in more.items()}
        found.append(vmap(lambda w, x=data.x[at], p=part: model.logits(w, x, **p))(weights).argmax(-1))
    right = (torch.cat(found, 1) == data.y).float()
    if not balanced:
        return [float(value) for value in right.mean(1)]
    by_class = torch.stack([right[:, data.y == c].mean(1) for c in sorted(set(data.y.tolist()))])
    return [float(value) for value in by_class.mean(0)]
