"""The tasks of learning: what a model answers, which loss trains it, and which metric says how good it is.

A task is a value. Model, loss, evaluation, summary, report, prediction, export and firmware read it, and none of them
decides anything by itself. `tally` turns answers into numbers that add up over rows, so that a client can report how
well it does without a row leaving it; `figures` turns such sums into metrics.

    classification   one class of several; accuracy, or balanced accuracy and macro F1 (`task.metric`)
    ordinal          classes with an order; mean distance in levels, accuracy, quadratic kappa
    multilabel       any of several labels; macro and micro F1, exact match
    regression       numbers; RMSE and MAE, in the units of the data
    forecasting      the next values of a series; as regression
    anomaly          unlike the normal rows it trained on; AUROC and average precision
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from potluck.errors import Code, must_be, unknown
from potluck.metrics import ACCURACY, METRICS, Metric
from potluck.tasks.anomaly import Anomaly
from potluck.tasks.classes import Classification, MultiLabel, Ordinal
from potluck.tasks.numbers import Forecasting, Regression
from potluck.tasks.task import Figures, Loss, Task

__all__ = [
    "ACCURACY", "KINDS", "METRICS", "Anomaly", "Classification", "Figures", "Forecasting", "Loss", "Metric",
    "MultiLabel", "Ordinal", "Regression", "Task", "of_plain", "plain",
]  # fmt: skip

KINDS: dict[str, type[Task]] = {
    "classification": Classification,
    "regression": Regression,
    "forecasting": Forecasting,
    "ordinal": Ordinal,
    "multilabel": MultiLabel,
    "anomaly": Anomaly,
}


def plain(task: Task) -> dict[str, Any]:
    """A task as plain values: for model files, the run's database and deployments."""
    values = {one.name: getattr(task, one.name) for one in fields(task)}
    return {"kind": task.kind} | {key: list(v) if isinstance(v, tuple) else v for key, v in values.items()}


def of_plain(values: Mapping[str, Any]) -> Task:
    """The task of plain values; raise BadInput for anything else."""
    given = dict(values)
    kind = given.pop("kind", None)
    if kind not in KINDS:
        raise unknown(Code.TASK, "task.name", str(kind), KINDS)
    known = {one.name for one in fields(KINDS[kind])}
    if set(given) - known:
        raise unknown(Code.TASK, f"task {kind}", sorted(set(given) - known)[0], known)
    try:
        made: Callable[..., Task] = KINDS[kind]
        return made(**{key: tuple(v) if isinstance(v, list) else v for key, v in given.items()})
    except TypeError:
        raise must_be(Code.TASK, "task", f"the values of {kind}", dict(values)) from None
