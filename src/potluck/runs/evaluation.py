"""What an evaluation found: scores and losses of every client, and how they spread."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from potluck.fleet import ClientId
from potluck.metrics import ACCURACY, METRICS, Metric
from potluck.runs.record import SPREAD, Infers


@dataclass(frozen=True)
class ByClass:
    """Training rows, test rows and right answers of every client by class: arrays of K clients by C classes."""

    names: tuple[str, ...]
    train: np.ndarray  # training rows, as they were dealt out
    test: np.ndarray  # test rows at this moment
    right: np.ndarray


@dataclass(frozen=True)
class Scores:
    """Score and loss of every client with one kind of model (`runs.infer`)."""

    accuracy: np.ndarray  # the headline metric of the task
    loss: np.ndarray
    having: int  # clients that have such a model; the others were scored with their headline
    metric: Metric = ACCURACY

    def figures(self, trained: np.ndarray) -> dict[str, Any]:
        """Means over all clients, and over those that trained (`trained` marks them)."""
        everyone = spread(self.accuracy, self.metric)
        some = everyone if trained.all() else spread(self.accuracy[trained], self.metric)
        return {**everyone, "loss": float(self.loss.mean()), "trained": some}


def spread(accuracy: np.ndarray, metric: Metric) -> dict[str, float | None]:
    """The mean and the spread over clients; the worst is the largest of an error."""
    if not len(accuracy):
        return dict.fromkeys(SPREAD)
    ranked = _ranked(accuracy, metric)
    tenth = max(1, round(len(ranked) / 10))
    return {
        "mean": float(accuracy.mean()),
        "std": float(accuracy.std()),
        "worst": float(ranked[0]),
        "best": float(ranked[-1]),
        "worst_tenth": float(ranked[:tenth].mean()),
    }


def _ranked(scores: np.ndarray, metric: Metric) -> np.ndarray:
    """From the worst to the best."""
    return np.asarray(np.sort(scores)[:: -1 if metric.lower else 1])


@dataclass(frozen=True)
class Evaluation:
    clients: list[ClientId]
    accuracy: np.ndarray  # the headline metric of the task
    loss: np.ndarray
    samples: np.ndarray
    shared: float | None  # that of the shared model on the test rows of all clients together
    by_class: ByClass | None = None  # None where the rows are on other machines
    kind: str = "mixed"  # what the headline is: received, own or mixed
    others: Mapping[str, Scores] = field(default_factory=dict)  # received and own, where they are not the headline
    untrained: Mapping[ClientId, str] = field(default_factory=dict)  # never trained -> what it was scored with
    having: int | None = None  # clients with a headline of this kind; None: all
    doubt: float = 0.0  # the share of clients whose scores may be lies; 0 where the scores are our own
    metric: Metric = ACCURACY
    more: Mapping[str, tuple[np.ndarray, float | None]] = field(default_factory=dict)  # other metrics, as the headline
    backdoor: float | None = None  # how often the trigger of an attack works (`faults.attack`)

    @property
    def cautious(self) -> tuple[float, float]:
        """The mean score without the best clients, and without the worst, as many as may lie."""
        if not self.doubt:
            mean = float(self.accuracy.mean())
            return mean, mean
        ranked, few = _ranked(self.accuracy, self.metric), math.ceil(self.doubt * len(self.accuracy))
        return float(ranked[: len(ranked) - few].mean()), float(ranked[few:].mean())

    @property
    def figures(self) -> dict[str, Any]:
        return {**spread(self.accuracy, self.metric), "loss": float(self.loss.mean()), "global": self.shared}

    @property
    def others_by_metric(self) -> dict[str, dict[str, Any]]:
        """The spread of the task's other metrics over clients, and their values for the shared model."""
        return {name: {**spread(values, METRICS[name]), "global": whole} for name, (values, whole) in self.more.items()}

    @property
    def infers(self) -> Infers:
        """The headline, received and own, as far as they exist."""
        trained = np.array([client not in self.untrained for client in self.clients])
        headline = Scores(
            self.accuracy, self.loss, len(self.clients) if self.having is None else self.having, self.metric
        )
        every = {"headline": headline, **({} if self.kind == "mixed" else {self.kind: headline}), **self.others}
        figures = {id(scores): scores.figures(trained) for scores in (headline, *self.others.values())}
        return Infers(
            self.kind,
            {name: figures[id(scores)] for name, scores in every.items()},
            {name: scores.having for name, scores in every.items()},
            [
                (name, client, accuracy, loss)
                for name, scores in self.others.items()
                for client, accuracy, loss in zip(
                    self.clients, scores.accuracy.tolist(), scores.loss.tolist(), strict=True
                )
            ],
            self.untrained,
            int(trained.sum()),
        )

    @property
    def classes(self) -> tuple[list[ClientId], ByClass] | None:
        return None if self.by_class is None else (self.clients, self.by_class)

    def rows(self) -> list[tuple[ClientId, float, float, int]]:
        samples = map(int, self.samples.tolist())
        return list(zip(self.clients, self.accuracy.tolist(), self.loss.tolist(), samples, strict=True))
