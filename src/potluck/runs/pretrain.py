"""Train an encoder in advance, on your own or on public data: Centaur's devices start with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from potluck import keys, models
from potluck.data import PartitionSpec, federate
from potluck.data.dataset import Dataset
from potluck.data.load import load as load_data
from potluck.errors import BadInput, Code, must_be
from potluck.fleet import Data, Params
from potluck.learn import sgd
from potluck.runs import model_files
from potluck.runs.evaluate import stacked


@dataclass(frozen=True)
class Pretrained:
    path: Path
    model: str
    data: str
    samples: int
    accuracy: float  # of encoder and classifier together, on test rows
    encoder: int  # parameters and statistics in the file
    layer: str  # the first layer of the classifier


def pretrain(
    out: Path,
    source: str,
    settings: Mapping[str, Any],
    *,
    epochs: int = 5,
    batch: int = 64,
    lr: float = 0.01,
    momentum: float = 0.9,
    layer: str = "",
    seed: int = 0,
    said: Callable[[int, float], None] | None = None,
    dataset: Dataset | None = None,
) -> Pretrained:
    """Train a model centrally on all rows of a dataset, and write the layers before its classifier.

    `settings` is a model section: `name` and the model's own settings. `said` gets the accuracy after every epoch.
    `dataset` is the data, where it is read already.
    """
    if epochs < 1 or batch < 1 or not lr > 0:
        shown = f"{epochs}, {batch} and {lr}"
        raise must_be(Code.FLAG_VALUE, "pretrain: epochs, batch and lr", "above 0", shown=shown)
    if not out.parent.is_dir():
        raise BadInput(
            Code.OUTPUT_PLACE, f"ENCODER.safetensors: there is no folder {str(out.parent)!r} to write {out.name} into."
        )
    dataset = load_data(source) if dataset is None else dataset
    # One client has all rows. The split keeps recordings whole, as in any run.
    held = federate(dataset, PartitionSpec(kind="iid", clients=1, seed=seed), "global", seed)
    own = dict(settings)
    name = own.pop("name", None) or models.default_for(dataset.sample_shape)
    model = models.build(name, dataset.sample_shape, dataset.classes, own)
    split = model.split(layer)
    train, test = (_rows(held, part, sizes) for part, sizes in (("train", held.sizes), ("test", held.test_sizes)))
    weights, key = model.init(seed), keys.key(seed, "pretrain")
    accuracy = 0.0
    with torch.no_grad():
        for epoch in range(epochs):
            at = keys.fold(key, epoch)
            weights = sgd(model, weights, train, key=at, lr=lr, batch=batch, momentum=momentum)
            accuracy = _accuracy(model, weights, test)
            if said is not None:
                said(epoch + 1, accuracy)
    encoder = {part: weights[part] for part in weights if part in split.encoder}
    if not encoder:
        raise BadInput(
            Code.MODEL_CUT, f"pretrain: {name} has nothing before {split.layer!r}; name a later layer with --split."
        )
    about = {"model": name, "data": dataset.name, "layer": split.layer, "accuracy": round(accuracy, 4)}
    model_files.save(out, encoder, about)
    return Pretrained(
        out, name, dataset.name, len(train.y), accuracy, sum(v.numel() for v in encoder.values()), split.layer
    )


def _rows(held: Any, part: Any, sizes: Any) -> Data:
    rows = stacked(held, [0], part, int(np.asarray(sizes)[0]))
    return Data(
        rows.x[0],
        rows.y[0],
        rows.weight[0],
        None if rows.t is None else rows.t[0],
        None if rows.length is None else rows.length[0],
    )


def _accuracy(model: models.Model, weights: Params, data: Data, at_once: int = 1024) -> float:
    right = 0
    for i in range(0, len(data.y), at_once):
        piece = slice(i, i + at_once)
        t, length = (None if value is None else value[piece] for value in (data.t, data.length))
        right += int((model.logits(weights, data.x[piece], t=t, length=length).argmax(-1) == data.y[piece]).sum())
    return right / len(data.y)
