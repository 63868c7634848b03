"""A dataset as its task needs it: targets made of classes or of the ends of windows, and the task with its figures.

`posed` changes the rows before they are dealt out. `task_of` takes what must be known of the training rows: the mean
and the spread of a number, the shares of the classes. They are a few sums, which a deployed fleet can add up as well.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from potluck.data.dataset import Array, Dataset
from potluck.data.federation import Federation
from potluck.data.split import TRAIN
from potluck.data.strata import strata
from potluck.errors import BadInput, Code, must_be, unknown
from potluck.tasks import Anomaly, Classification, Forecasting, MultiLabel, Ordinal, Regression, Task
from potluck.tasks.spec import TaskSpec


def posed(data: Dataset, spec: TaskSpec) -> Dataset:
    """The dataset with the targets of the task; BadInput where its labels cannot be that."""
    name = kind_of(data, spec)
    if data.unlabelled is not None and name != "classification":
        raise BadInput(
            Code.TASK, f"task.name: {name} needs the label of every row, but {data.name} has rows without one."
        )
    if spec.labels < 1 and name != "classification":
        raise must_be(Code.TASK, "task.labels", f"1 for the task {name}", spec.labels)
    if name in ("classification", "ordinal", "anomaly") and data.target is not None:
        raise BadInput(
            Code.TASK, f"task.name: {name} needs classes, but the labels of {data.name} are for {data.asks}."
        )
    if name == "multilabel" and data.asks != "multilabel":
        raise BadInput(Code.TASK, f"task.name: multilabel needs several labels per row, but {data.name} has one.")
    if name == "regression" and data.asks != "regression":
        return _with_target(data, _as_numbers(data), "regression")
    if name == "forecasting":
        return _ahead(data, spec)
    if name == "anomaly":
        return _one_class(data, spec)
    if name == "ordinal":
        order = " < ".join(data.class_names)
        return replace(data, notes=(*data.notes, f"The order of the classes: {order}."))
    return data


def _one_class(data: Dataset, spec: TaskSpec) -> Dataset:
    """Classes as normal (0) and anomalous (1). Anomalous rows are never trained on: they go to the test rows."""
    normal = spec.normal or data.class_names[:1]
    for name in normal:
        if name not in data.class_names:
            raise unknown(Code.TASK, "task.normal", name, data.class_names)
    odd = ~np.isin(np.array(data.class_names), normal)[data.y]
    if odd.all() or not odd.any():
        raise must_be(Code.TASK, "task.normal", "some of the classes, so that rows of others are anomalous", normal)
    note = f"Normal: {', '.join(normal)}. The {int(odd.sum())} rows of other classes are for testing only."
    return replace(
        data, y=odd.astype(np.int64), classes=2, class_names=("normal", "anomalous"), odd=odd, notes=(*data.notes, note)
    )


def kind_of(data: Dataset, spec: TaskSpec) -> str:
    """The task of this data: as set, or what its labels ask for."""
    return spec.name if spec.name != "auto" else data.asks or "classification"


def _with_target(data: Dataset, target: Array, asks: str) -> Dataset:
    y, names = strata(target)
    return replace(data, y=y, classes=len(names), class_names=names, target=target.astype(np.float32), asks=asks)


def _as_numbers(data: Dataset) -> Array:
    """Classes whose names are numbers, as these numbers."""
    if data.target is None:
        try:
            return np.array([float(name) for name in data.class_names], dtype=np.float32)[data.y]
        except ValueError:
            pass
    first = data.asks or f"the class {data.class_names[0]!r}"
    raise BadInput(Code.TASK, f"task.name: regression needs labels that are numbers, but {data.name} has {first}.")


def _ahead(data: Dataset, spec: TaskSpec) -> Dataset:
    """Cut the last `horizon` steps off every window: their values of one channel are the target."""
    if data.kind != "series" or data.length is not None:
        raise BadInput(Code.TASK, f"task.name: forecasting needs windows of one length, but {data.name} has none.")
    steps = data.x.shape[1] - spec.horizon
    if steps < 1:
        raise must_be(Code.TASK, "task.horizon", f"below {data.x.shape[1]}, the steps of a window", spec.horizon)
    channel = _channel(data, spec.channel)
    target = np.asarray(data.x[:, steps:, channel], dtype=np.float32)
    if not np.isfinite(target).all():
        raise BadInput(Code.TASK, f"task.channel: {spec.channel or channel} has missing values, so it has no targets.")
    cut = replace(data, x=data.x[:, :steps], t=None if data.t is None else data.t[:, :steps])
    return _with_target(cut, target[:, 0] if spec.horizon == 1 else target, "forecasting")


def _channel(data: Dataset, named: str) -> int:
    if named in data.channel_names:
        return data.channel_names.index(named)
    channels = data.x.shape[2]
    if named.isdecimal() or not named:
        place = int(named or 0)
        if place >= channels:
            raise must_be(Code.TASK, "task.channel", f"0 to {channels - 1}", named)
        return place
    raise unknown(Code.TASK, "task.channel", named, data.channel_names or [str(k) for k in range(channels)])


def task_of(federation: Federation, spec: TaskSpec) -> Task:
    """The task with what it needs to know of the training rows of all clients."""
    data, rows = federation.dataset, np.flatnonzero(federation.side == TRAIN)
    match kind_of(data, spec):
        case "regression":
            return Regression(spec.metric, *_scale(data, spec, rows))
        case "forecasting":
            return Forecasting(spec.metric, *_scale(data, spec, rows))
        case "ordinal":
            return Ordinal(spec.metric, data.classes)
        case "multilabel":
            return MultiLabel(spec.metric, data.learned.shape[1])
        case "anomaly":
            return Anomaly(spec.metric, prod(data.sample_shape))
        case _:
            weights = _weights(data, rows) if spec.balance else ()
            few = {key: getattr(spec, key) for key in ("threshold", "push", "noise")}
            few["unlabelled"] = "ignore" if spec.unlabelled == "auto" else spec.unlabelled
            hidden = spec.labels < 1 or data.unlabelled is not None
            return Classification(spec.metric, data.classes, weights, **(few if hidden else {}))


def _scale(data: Dataset, spec: TaskSpec, rows: Array) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of the training targets, unless they are set."""
    outputs = 1 if data.learned.ndim == 1 else data.learned.shape[1]
    if spec.centre:
        if {len(spec.centre), len(spec.spread)} != {outputs}:
            raise must_be(Code.TASK, "task.centre", f"{outputs} numbers, one for each output", spec.centre)
        return spec.centre, spec.spread
    values = np.asarray(data.learned[rows], dtype=np.float64).reshape(len(rows), -1)
    spread = values.std(0)
    spread = np.where(spread > 0, spread, 1.0)
    return tuple(values.mean(0).tolist()), tuple(spread.tolist())


def _weights(data: Dataset, rows: Array) -> tuple[float, ...]:
    """n / (C n_c) of every class c with n_c of n training rows; 0 for a class without any."""
    known = data.y[rows]
    counts = np.bincount(known[known >= 0], minlength=data.classes).astype(np.float64)
    held = counts > 0
    weights = np.divide(counts.sum(), held.sum() * counts, out=np.zeros_like(counts), where=held)
    return tuple(weights.tolist())
