"""Deal the rows of an experiment: to its clients, to their parts, and to the server."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from potluck.data import Federation, federate
from potluck.data.dataset import Dataset
from potluck.data.few import hide_labels
from potluck.data.load import is_kept, is_named, loaded
from potluck.data.load import load as load_data
from potluck.data.pose import posed
from potluck.data.server import divide, subset, whole
from potluck.errors import BadInput, Code, must_be
from potluck.fleet import Data
from potluck.runs.experiment import Experiment

_DEALS: dict[str, tuple[Dataset, tuple[Federation, Data | None]]] = {}  # by what was asked for, the oldest first


def federation_of(experiment: Experiment) -> Federation:
    return dealt(experiment)[0]


def dealt(experiment: Experiment) -> tuple[Federation, Data | None]:
    """Return the clients' data, and the server's data if it has any.

    Of public sets the last two are kept: a tuning and its report have one each, for many runs.
    """
    source, intake = experiment.data.source, experiment.intake()
    rows = loaded(source, intake)
    if experiment.server.source is not None or not is_kept(source, intake):
        return _deal(experiment, rows)
    asked = repr((experiment.data, experiment.task, experiment.partition_spec(), experiment.server.share))
    known = _DEALS.get(asked)
    if known is None or known[0] is not rows:
        for older in list(_DEALS)[: max(0, len(_DEALS) - 1)]:
            _DEALS.pop(older, None)
        known = _DEALS[asked] = (rows, _deal(experiment, rows))
    return known[1]


def _deal(experiment: Experiment, rows: Dataset) -> tuple[Federation, Data | None]:
    task, own = experiment.task.spec(), None
    dataset = posed(rows, task)
    share, standardise = experiment.server.share, experiment.data.standardise
    strange = sorted(set(dataset.class_names) - set(experiment.data.classes or dataset.class_names))
    if strange:
        raise must_be(Code.DATA_LABELS, "data.classes", "a list of all labels", shown=f"a list without {strange[0]!r}")
    seed = split_seed(experiment)
    if experiment.server.source is not None:
        own = _source(experiment, dataset.sample_shape, dataset.classes, dataset.asks)
    elif share:
        own, dataset = divide(dataset, share, seed)
        own = own if own.odd is None else subset(own, np.flatnonzero(~own.odd))
        own = own if own.unlabelled is None else subset(own, np.flatnonzero(own.y >= 0))
    federation = federate(dataset, experiment.partition_spec(), standardise, seed)
    if task.labels < 1:
        hide_labels(federation, task.labels, seed)
    return federation, None if own is None else _as_rows(own, standardise)


def split_seed(experiment: Experiment) -> int:
    """The seed that says which rows the server, the clients and their test sets get."""
    seed = experiment.partition_spec().seed
    return experiment.run.seed if seed is None else seed


def own_rows(experiment: Experiment, shape: Sequence[int], classes: int) -> Data | None:
    """Return the server's data for a deployment, where the clients' rows are on other machines."""
    if experiment.server.source is not None:
        return _as_rows(_source(experiment, tuple(shape), classes), experiment.data.standardise)
    if not experiment.server.share:
        return None
    rows = load_data(experiment.data.source, experiment.intake())
    own, _ = divide(rows, experiment.server.share, split_seed(experiment))
    return _as_rows(own, experiment.data.standardise)


def _source(experiment: Experiment, shape: tuple[int, ...], classes: int, asks: str = "") -> Dataset:
    source = str(experiment.server.source)
    own = posed(load_data(source, None if is_named(source) else experiment.intake()), experiment.task.spec())
    if own.asks != asks:
        raise BadInput(
            Code.SERVER_ROWS,
            f"server.source: {own.name} is for {own.asks or 'classes'}, the clients' rows for {asks or 'classes'}.",
        )
    if own.sample_shape != shape or (own.classes != classes and not asks):
        raise BadInput(
            Code.SERVER_ROWS,
            f"server.source: {own.name} has samples of shape {own.sample_shape} in {own.classes} classes, "
            f"{experiment.data.source} has {shape} in {classes}.",
        )
    return divide(own, experiment.server.share, split_seed(experiment))[0] if experiment.server.share else own


def _as_rows(own: Dataset, standardise: str) -> Data:
    x, y, t, length = (None if part is None else torch.from_numpy(part) for part in whole(own, standardise))
    assert x is not None
    assert y is not None
    return Data(x, y, torch.ones(len(y)), t, length)
