"""Evaluate each client's model on its own test rows, or on its validation rows (`run.evaluate_on`).

This takes no virtual time and changes no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from potluck import keys
from potluck.data import Federation
from potluck.data.drift import Drift, Labels
from potluck.data.federation import Part
from potluck.engines.samples import renamed
from potluck.errors import Code, must_be
from potluck.fleet import ClientId, Data, Params
from potluck.models import Model

ROWS = 4096  # test rows in one forward pass


@dataclass(frozen=True)
class ByClass:
    """Training rows, test rows and right answers of every client by class: arrays of K clients by C classes."""

    names: tuple[str, ...]
    train: np.ndarray  # training rows, as they were dealt out
    test: np.ndarray  # test rows at this moment
    right: np.ndarray


@dataclass(frozen=True)
class Evaluation:
    clients: list[ClientId]
    accuracy: np.ndarray
    loss: np.ndarray
    samples: np.ndarray
    shared: float | None  # accuracy of the shared model on the test rows of all clients together
    by_class: ByClass | None = None  # None where the rows are on other machines

    @property
    def figures(self) -> dict[str, Any]:
        ranked = np.sort(self.accuracy)
        tenth = max(1, round(len(ranked) / 10))
        return {
            "mean": float(self.accuracy.mean()),
            "std": float(self.accuracy.std()),
            "worst": float(ranked[0]),
            "best": float(ranked[-1]),
            "worst_tenth": float(ranked[:tenth].mean()),
            "loss": float(self.loss.mean()),
            "global": self.shared,
        }

    @property
    def classes(self) -> tuple[list[ClientId], ByClass] | None:
        return None if self.by_class is None else (self.clients, self.by_class)

    def rows(self) -> list[tuple[ClientId, float, float, int]]:
        return [
            (client, float(a), float(loss), int(n))
            for client, a, loss, n in zip(self.clients, self.accuracy, self.loss, self.samples, strict=True)
        ]


class Evaluator:
    """Evaluates the same clients each time: all, or a sample if the fleet is larger than `most`.

    `part` names the rows; other rows are never read. Clients without such rows are not evaluated.
    """

    def __init__(
        self,
        model: Model,
        federation: Federation,
        most: int,
        seed: int,
        drift: Drift | None = None,
        part: Part = "test",
    ) -> None:
        self._model = model
        self._federation = federation
        self._drift = drift if drift is not None and drift.moments else None
        self.part: Part = part
        having = np.flatnonzero(federation.counts(part) > 0)
        if self._drift is not None and len(having) < len(federation.names):
            wanted = f"{part} rows for every client, because drift.at moves rows between clients"
            raise must_be(Code.PARTITION_ROWS, "partition", wanted, shown=f"{len(having)} clients that have some")
        if not len(having):
            raise must_be(
                Code.PARTITION_ROWS, "run.evaluate_on", "'test', because no client has validation rows", part,
                fix="Or set partition.valid_share.",
            )  # fmt: skip
        if len(having) > most:
            having = having[np.sort(keys.rng(seed, "evaluate").choice(len(having), most, replace=False))]
        self.places = [int(i) for i in having]
        self.clients = [federation.names[i] for i in self.places]
        self._views: list[tuple[int, Labels]] = [(place, None) for place in self.places]
        self._phase = 0
        self._plan()

    def _plan(self) -> None:
        """Choose which clients are evaluated together."""
        self.sizes = np.array([int(self._federation.counts(self.part)[place]) for place, _ in self._views])
        # Clients of similar size share a chunk, so that padding stays small. Few chunks keep Python's overhead small.
        order = np.argsort(self.sizes, kind="stable")
        self._chunks: list[np.ndarray] = []
        start = 0
        for stop in range(1, len(order) + 1):
            rows = (stop - start) * int(self.sizes[order[stop - 1]])
            if stop == len(order) or rows + int(self.sizes[order[stop]]) > ROWS:
                self._chunks.append(order[start:stop])
                start = stop
        self._kept: dict[int, Data] = {}

    def __call__(
        self, personal: Mapping[ClientId, Params] | Sequence[Params], shared: Params | None, now: float = 0.0
    ) -> Evaluation:
        """Evaluate each client's model on the rows it has at this moment."""
        if self._drift is not None and self._drift.phase(now) != self._phase:
            self._phase = self._drift.phase(now)
            self._views = [self._drift.view(place, now) for place in self.places]
            self._plan()
        models = [personal[client] for client in self.clients] if isinstance(personal, Mapping) else list(personal)
        dataset = self._federation.dataset
        loss, hits = np.zeros(len(models)), np.zeros((len(models), dataset.classes), dtype=np.int64)
        test = np.zeros_like(hits)
        for number, chunk in enumerate(self._chunks):
            data = self._data(number, chunk)
            hits[chunk], loss[chunk] = self._measure([models[i] for i in chunk], data)
            test[chunk] = self._by_class(data, data.weight)
        right = hits.sum(1).astype(float)
        counts = np.maximum(self.sizes, 1)
        whole = None
        if shared is not None:
            common = hits
            if not all(model is shared for model in models):
                common = np.zeros_like(hits)
                for number, chunk in enumerate(self._chunks):
                    common[chunk], _ = self._measure([shared] * len(chunk), self._data(number, chunk))
            whole = float(common.sum() / max(1, self.sizes.sum()))
        found = ByClass(dataset.class_names, self._train, test, hits)
        return Evaluation(self.clients, right / counts, loss / counts, self.sizes, whole, found)

    @cached_property
    def _train(self) -> np.ndarray:
        return np.asarray(self._federation.class_counts(self.places))

    def _by_class(self, data: Data, weight: Tensor) -> np.ndarray:
        """Sum the weights of samples by class, for each client of a chunk."""
        empty = torch.zeros(len(weight), self._federation.dataset.classes)
        return empty.scatter_add_(1, data.y, weight).numpy().round().astype(np.int64)

    def _data(self, number: int, chunk: np.ndarray) -> Data:
        if number not in self._kept:
            capacity = int(self.sizes[chunk].max())
            places, labels = zip(*(self._views[i] for i in chunk), strict=True)
            data = renamed(stacked(self._federation, places, self.part, max(1, capacity)), labels)
            if len(self._chunks) > 64:  # too much to keep in memory
                return data
            self._kept[number] = data
        return self._kept[number]

    @torch.no_grad()
    def _measure(self, models: list[Params], data: Data) -> tuple[np.ndarray, np.ndarray]:
        """Return right answers by class and summed loss of each client of a chunk."""
        if self._model.kind == "conv":  # pooling and convolution are several times faster with the channels last
            models = _channels_last(models)
        logits = self._logits(models, data)
        losses = self._model.losses(logits.flatten(0, 1), data.y.flatten()).reshape(data.y.shape)
        right = (logits.argmax(-1) == data.y).float() * data.weight
        return self._by_class(data, right), (losses * data.weight).sum(1).numpy().astype(float)

    def _logits(self, models: list[Params], data: Data) -> Tensor:
        first = models[0]
        optional = {"t": data.t, "length": data.length}
        if all(model is first for model in models):
            flat = {name: None if value is None else value.flatten(0, 1) for name, value in optional.items()}
            return self._model.logits(first, data.x.flatten(0, 1), **flat).reshape(*data.y.shape, -1)
        if self._model.kind == "conv" or not _alike(models):
            return torch.stack(
                [
                    self._model.logits(
                        model, data.x[i], **{n: None if v is None else v[i] for n, v in optional.items()}
                    )
                    for i, model in enumerate(models)
                ]
            )
        weights = {name: torch.stack([model[name] for model in models]) for name in first}
        given = {name: value for name, value in optional.items() if value is not None}
        return vmap(lambda w, x, extra: self._model.logits(w, x, **extra))(weights, data.x, given)


def _channels_last(models: list[Params]) -> list[Params]:
    """Copy each model once: clients that share a model share the copy."""
    copies: dict[int, Params] = {}
    for model in models:
        if id(model) not in copies:
            copies[id(model)] = {
                name: value.clone(memory_format=torch.channels_last) if value.dim() == 4 else value
                for name, value in model.items()
            }
    return [copies[id(model)] for model in models]


def _alike(models: list[Params]) -> bool:
    """Whether the models can be stacked: sub-models of different widths cannot."""
    first = {name: value.shape for name, value in models[0].items()}
    return all({name: value.shape for name, value in model.items()} == first for model in models[1:])


def stacked(federation: Federation, places: Sequence[int], part: Part, capacity: int) -> Data:
    """Return the padded data of several clients as tensors."""
    x, y, weight, t, length = federation.materialise_many(places, part, capacity)
    return Data(
        torch.from_numpy(x),
        torch.from_numpy(y),
        torch.from_numpy(weight),
        None if t is None else torch.from_numpy(t),
        None if length is None else torch.from_numpy(length),
    )
