"""Evaluate each client's model on its own test rows, or on its validation rows (`run.evaluate_on`).

This takes no virtual time and changes no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from operator import itemgetter

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from potluck import keys
from potluck._outputs import outputs, runs_apart, scores
from potluck.compiled import spread
from potluck.data import Federation
from potluck.data.drift import Drift, Labels
from potluck.data.federation import Part
from potluck.engines.local.hostile import Hostile
from potluck.engines.samples import renamed
from potluck.errors import Code, must_be
from potluck.fleet import ClientId, Data, Params
from potluck.models import Model
from potluck.runs.backdoor import hits
from potluck.runs.evaluation import ByClass, Evaluation, Scores
from potluck.runs.infer import Models
from potluck.tasks.task import Figures
from potluck.wire.codec import walk

ROWS = 4096  # test rows in one forward pass
TOGETHER = 1 << 17  # numbers of which the task's figures are computed at once
Found = tuple[np.ndarray, np.ndarray]  # of every client the task's sums (K, S) and the summed loss (K)


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
        hostile: Hostile | None = None,
    ) -> None:
        self._model, self._task = model, model.task
        self._federation = federation
        self._drift = drift if drift is not None and drift.moments else None
        self.part: Part = part
        self._hostile = hostile
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
        self, personal: Mapping[ClientId, Params] | Sequence[Params] | Models, shared: Params | None, now: float = 0.0
    ) -> Evaluation:
        """Evaluate each client's model on the rows it has at this moment, and what else it may infer with."""
        if self._drift is not None and self._drift.phase(now) != self._phase:
            self._phase = self._drift.phase(now)
            self._views = [self._drift.view(place, now) for place in self.places]
            self._plan()
        if isinstance(personal, Mapping):
            personal = [personal[client] for client in self.clients]
        models = personal if isinstance(personal, Models) else Models(list(personal))
        lists = {"headline": models.headline, **models.others}
        lists |= {} if shared is None else {"shared": [shared] * len(self.clients)}
        found = self._run(lists)
        counts, metric = np.maximum(self.sizes, 1), self._task.headline
        figures = self._figures(found)
        (sums, loss), own = found["headline"], figures["headline"]
        pooled = {
            one.name: None if shared is None else float(figures["shared"][one.name][0]) for one in self._task.metrics
        }
        return Evaluation(
            self.clients,
            own[metric.name],
            loss / counts,
            self.sizes,
            pooled[metric.name],
            self._classes(sums),
            models.kind,
            {
                kind: Scores(figures[kind][metric.name], found[kind][1] / counts, models.having[kind], metric)
                for kind in models.others
            },
            models.untrained,
            models.having.get(models.kind),
            metric=metric,
            more={one.name: (own[one.name], pooled[one.name]) for one in self._task.metrics[1:]},
            backdoor=hits(
                self._hostile,
                self.places,
                [(chunk, partial(self._data, number)) for number, chunk in enumerate(self._chunks)],
                models.headline,
                self._logits,
            ),
        )

    def _figures(self, found: Mapping[str, Found]) -> dict[str, Figures]:
        """The task's figures of every client with each list of models; those of the shared model on all rows at once.

        They are computed together, since most of their time goes into starting operations, unless they are many.
        """
        sums = {name: one.sum(0, keepdims=True) if name == "shared" else one for name, (one, _) in found.items()}
        if sum(one.size for one in sums.values()) > TOGETHER:
            return {name: self._task.figures(one) for name, one in sums.items()}
        whole, begin, figures = self._task.figures(np.concatenate(list(sums.values()))), 0, {}
        for name, one in sums.items():
            end = begin + len(one)
            figures[name], begin = {metric: values[begin:end] for metric, values in whole.items()}, end
        return figures

    def _run(self, lists: Mapping[str, Sequence[Params]]) -> dict[str, Found]:
        """The task's sums and the summed loss of every client with each list of models.

        A client that has the same object in several lists is measured once.
        """
        parts: dict[str, list[Found]] = {name: [] for name in lists}
        for number, chunk in enumerate(self._chunks):
            data, clients = self._data(number), chunk.tolist()
            mine = {name: [models[i] for i in clients] for name, models in lists.items()}
            # By kernels all lists at once; elsewhere the rounding depends on who is measured together.
            measured = self._at_once if runs_apart(self._model, data.x) else self._in_turn
            for name, found in measured(data, mine).items():
                parts[name].append(found)
        back = np.argsort(np.concatenate(self._chunks))  # from the order of the chunks to that of the clients
        return {
            name: (np.concatenate([sums for sums, _ in found])[back], np.concatenate([loss for _, loss in found])[back])
            for name, found in parts.items()
        }

    def _at_once(self, data: Data, mine: Mapping[str, list[Params]]) -> dict[str, Found]:
        """Measure each model of each client once."""
        models: list[Params] = []
        which: list[int] = []
        places: dict[tuple[int, int], int] = {}  # by client and object
        rows: dict[str, list[int]] = {}
        same: dict[tuple[int, ...], list[int]] = {}  # lists of the same objects
        for name, given in mine.items():
            key = tuple(map(id, given))
            if key not in same:
                same[key] = []
                for pair in enumerate(key):
                    place = places.setdefault(pair, len(models))
                    if place == len(models):
                        models.append(given[pair[0]])
                        which.append(pair[0])
                    same[key].append(place)
            rows[name] = same[key]
        sums, losses = self._measure(models, data, which)
        return {name: (sums[at], losses[at]) for name, at in rows.items()}

    def _in_turn(self, data: Data, mine: Mapping[str, list[Params]]) -> dict[str, Found]:
        """Measure list after list, each as a whole, unless all of it is known."""
        known: dict[tuple[int, int], tuple[np.ndarray, float]] = {}
        found = {}
        for name, given in mine.items():
            pairs = list(enumerate(map(id, given)))
            if not all(pair in known for pair in pairs):
                sums, losses = self._measure(given, data, [*range(len(given))])
                known |= zip(pairs, zip(sums, losses, strict=True), strict=True)
            found[name] = (np.stack([known[pair][0] for pair in pairs]), np.array([known[pair][1] for pair in pairs]))
        return found

    def _classes(self, sums: np.ndarray) -> ByClass | None:
        """Right answers and test rows by class, where the task has classes."""
        if not self._task.labelled:
            return None
        classes = self._federation.dataset.classes
        whole = sums[:, : 3 * classes].round().astype(np.int64)
        names = self._federation.dataset.class_names
        return ByClass(names, self._train, whole[:, 2 * classes :], whole[:, :classes])

    @cached_property
    def _train(self) -> np.ndarray:
        return np.asarray(self._federation.class_counts(self.places))

    def _data(self, number: int) -> Data:
        if number not in self._kept:
            chunk = self._chunks[number]
            capacity = int(self.sizes[chunk].max())
            places, labels = zip(*(self._views[i] for i in chunk), strict=True)
            data = renamed(stacked(self._federation, places, self.part, max(1, capacity)), labels)
            if len(self._chunks) > 64:  # too much to keep in memory
                return data
            self._kept[number] = data
        return self._kept[number]

    @torch.no_grad()
    def _measure(self, models: list[Params], data: Data, which: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the task's sums and the summed loss of models, each on the rows of one client of a chunk."""
        if self._model.kind == "conv":  # pooling and convolution are several times faster with the channels last
            models = _channels_last(models)
        logits = self._logits(models, data, which)
        found = scores(self._model, logits, data.y, data.weight, which)
        if found is not None:
            return found
        y, weight = (data.y, data.weight) if which == [*range(len(data.y))] else (data.y[which], data.weight[which])
        losses = self._model.losses(logits.flatten(0, 1), y.flatten(0, 1)).reshape(weight.shape)
        sums = self._task.tally(logits, y, weight).numpy()
        return sums, (losses * weight).sum(1).numpy().astype(float)

    def _logits(self, models: list[Params], data: Data, which: list[int] | None = None) -> Tensor:
        known = outputs(self._model, models, data.x, data.weight, which)
        if known is not None:
            return known
        if which is not None and which != [*range(len(data.y))]:
            data = walk(data, itemgetter(which))
        first = models[0]
        optional = {"t": data.t, "length": data.length}
        if all(model is first for model in models):
            flat = {name: None if value is None else value.flatten(0, 1) for name, value in optional.items()}
            return self._model.logits(first, data.x.flatten(0, 1), **flat).reshape(*data.weight.shape, -1)
        if self._model.kind == "conv" or not _alike(models):
            return self._one_by_one(models, data.x, optional)
        weights = {name: torch.stack([model[name] for model in models]) for name in first}
        given = {name: value for name, value in optional.items() if value is not None}
        return vmap(lambda w, x, extra: self._model.logits(w, x, **extra))(weights, data.x, given)

    def _one_by_one(self, models: list[Params], x: Tensor, optional: Mapping[str, Tensor | None]) -> Tensor:
        """Logits of models that cannot be stacked. Clients of one object are run together, unless all could be stacked.

        (Convolutions are run client by client: a larger batch would round in another way.)
        """
        groups: dict[int, list[int]] = {}
        for i, model in enumerate(models):
            groups.setdefault(i if self._model.kind == "conv" else id(model), []).append(i)
        parts: dict[int, Tensor] = {}
        alike = list(groups.values())

        @torch.no_grad()
        def some(begin: int, end: int) -> None:
            for places in alike[begin:end]:
                given = {n: None if v is None else v[places].flatten(0, 1) for n, v in optional.items()}
                out = self._model.logits(models[places[0]], x[places].flatten(0, 1), **given)
                parts.update(zip(places, out.reshape(len(places), x.shape[1], -1), strict=True))

        spread(len(alike), some)
        return torch.stack([parts[i] for i in range(len(models))])


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
