"""The settings of `[task]`: what is to be learned, and what the data alone does not say about it."""

from __future__ import annotations

from dataclasses import dataclass

from potluck.errors import BadInput, Code, must_be, unknown
from potluck.metrics import METRICS

NAMES = {
    "auto": "regression for labels with a decimal point, several labels for a table of 0 and 1, else classes",
    "classification": "one class of several",
    "regression": "one or more numbers per sample",
    "forecasting": "the last steps of a channel of each window, from the steps before them",
    "ordinal": "classes that have an order, which is that of their numbers",
    "multilabel": "any of several labels at once",
    "anomaly": "train on normal rows only, and tell anomalous ones from them",
}
_OF = {  # the settings that mean something to a task
    "balance": ("classification",),
    "centre": ("regression", "forecasting"),
    "spread": ("regression", "forecasting"),
    "channel": ("forecasting",),
    "horizon": ("forecasting",),
    "normal": ("anomaly",),
    "labels": ("classification",),
}


@dataclass(frozen=True)
class TaskSpec:
    name: str = "auto"
    metric: str = ""  # the metric that ranks models; "": the usual one of the task
    balance: bool = False  # classification: a class counts by the inverse of its share of the training rows
    centre: tuple[float, ...] = ()  # regression: what is subtracted from the targets; (): their mean
    spread: tuple[float, ...] = ()  # regression: what they are divided by; (): their standard deviation
    channel: str = ""  # forecasting: the channel, by name or position from 0; "": the first
    horizon: int = 1  # forecasting: steps at the end of a window that are to be predicted
    normal: tuple[str, ...] = ()  # anomaly: the classes that are normal; (): the first
    labels: float = 1.0  # classification: share of each client's training rows that keep their label
    unlabelled: str = (
        "auto"  # what is done with rows without a label: ignore, pseudo, consistency; auto: ignore or refuse
    )
    threshold: float = 0.95  # the probability from which a model's own answer counts as a label
    push: float = 1.0  # what the loss of rows without a label counts
    noise: float = 0.5  # consistency: standard deviation of what is added to a sample, in standardised units

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise unknown(Code.TASK, "task.name", self.name, NAMES)
        if self.metric and self.metric not in METRICS:
            raise unknown(Code.TASK, "task.metric", self.metric, METRICS)
        if not 0 < self.labels <= 1:
            raise must_be(Code.TASK, "task.labels", "above 0 and at most 1", self.labels)
        if self.horizon < 1:
            raise must_be(Code.TASK, "task.horizon", "1 or more", self.horizon)
        if bool(self.centre) != bool(self.spread):
            raise must_be(Code.TASK, "task.centre", "set together with task.spread, or both left out", self.centre)
        if self.name == "auto":
            return
        given = TaskSpec()
        for setting, tasks in _OF.items():
            if getattr(self, setting) != getattr(given, setting) and self.name not in tasks:
                raise BadInput(
                    Code.TASK, f"task.{setting}: works with the task {' or '.join(tasks)}, got {self.name!r}."
                )
