"""Predict the accuracy at the end of a run from a short look and the experience of the archive.

Accuracies are predicted as log-odds, by ridge regression on what the look saw and on the data's facts, with an offset
for each method that is drawn towards 0. Intervals come from errors that the regression made on data sets it had not
seen. The time to a target follows from the mean course of each method's curve in the archive and from the dry run.

`calibration.json` holds the fit; `experiments/plan/backtest.py` makes it from the archive.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from potluck.planner.interval import Interval

Floats = NDArray[np.float64]
LOWEST, HIGHEST = 0.02, 0.99  # log-odds beyond are noise of a few test rows
FEATURES = ("seen", "gain", "chance", "rows", "skew", "clients")
BLIND = ("chance", "rows", "skew", "clients")  # of a method that could not be looked at
POINTS = 21  # of a curve


@dataclass(frozen=True)
class Seen:
    """What is known of a method before its full run."""

    method: str
    facts: Mapping[str, float]
    scores: Sequence[float] | None  # of the look, the first before training


@dataclass(frozen=True)
class Prediction:
    """The accuracy at the end; with a target, seconds and joules until it is reached, None where it is not."""

    accuracy: Interval
    target: float | None = None
    seconds: Interval | None = None
    joules: Interval | None = None


def odds(value: float) -> float:
    share = min(HIGHEST, max(LOWEST, value))
    return math.log(share / (1 - share))


def share(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def row(seen: Seen) -> Floats:
    """The features of one method in one situation."""
    about = seen.facts
    known = {
        "chance": odds(1 / about["classes"]),
        "rows": math.log(about["rows"]),
        "skew": about["skew"],
        "clients": math.log(about["clients"]),
    }
    if seen.scores is not None:
        known["seen"], known["gain"] = odds(seen.scores[-1]), odds(seen.scores[-1]) - odds(seen.scores[0])
    return np.array([known[name] for name in (BLIND if seen.scores is None else FEATURES)])


@dataclass(frozen=True)
class Fit:
    """A ridge regression with an offset and a slope of its own for each method."""

    mean: Floats
    scale: Floats
    common: Floats  # intercept first
    offsets: Mapping[str, float]
    error: float  # half the width of the 80 % interval, in log-odds

    @classmethod
    def to(cls, seen: Sequence[Seen], ends: Sequence[float], strength: float, error: float = 0.0) -> Fit:
        """Fit predictions to the accuracies at the ends of full runs; `strength` draws slopes and offsets to 0."""
        x, y = np.array([row(one) for one in seen]), np.array([odds(end) for end in ends])
        mean, scale = x.mean(0), np.maximum(x.std(0), 1e-6)
        names = sorted({one.method for one in seen})
        own = np.array([[float(one.method == name) for name in names] for one in seen])
        table = np.hstack([np.ones((len(x), 1)), (x - mean) / scale, own])
        drawn = np.diag([1e-9, *[strength] * x.shape[1], *[strength] * len(names)])
        found = np.linalg.solve(table.T @ table + drawn, table.T @ y)
        k = 1 + x.shape[1]
        return cls(mean, scale, found[:k], dict(zip(names, found[k:].tolist(), strict=True)), error)

    def at(self, seen: Seen) -> float:
        """The prediction, in log-odds. A method that the archive lacks has no offset."""
        values = (row(seen) - self.mean) / self.scale
        return float(self.common[0] + values @ self.common[1:] + self.offsets.get(seen.method, 0.0))

    def plain(self) -> dict[str, Any]:
        parts = {name: [round(float(v), 6) for v in getattr(self, name)] for name in ("mean", "scale", "common")}
        offsets = {name: round(value, 6) for name, value in self.offsets.items()}
        return {**parts, "offsets": offsets, "error": round(self.error, 6)}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Fit:
        parts = {name: np.array(plain[name], dtype=float) for name in ("mean", "scale", "common")}
        return cls(**parts, offsets=dict(plain["offsets"]), error=float(plain["error"]))


@dataclass(frozen=True)
class Calibration:
    """The experience of the archive."""

    looked: Fit
    blind: Fit
    curves: Mapping[str, Sequence[float]]  # share of the way from the first score to the last, at equal passes
    apart: float  # standard deviation of the error of a difference between two methods, in log-odds
    situations: int

    def predict(
        self, seen: Seen, target: float | None, steps: Sequence[tuple[float, float, float, float]]
    ) -> Prediction:
        """Predict a method's end, and with a target when it gets there; `steps` are those of its dry run."""
        fit = self.blind if seen.scores is None else self.looked
        middle = fit.at(seen)
        end = Interval(share(middle), share(middle - fit.error), share(middle + fit.error))
        if target is None:
            return Prediction(end)
        start = 1 / seen.facts["classes"] if seen.scores is None else seen.scores[0]
        curve = self.curves.get(seen.method, self.curves["all"])
        moments = [reaches(curve, start, last, target, steps) for last in (end.value, end.high, end.low)]
        if moments[1] is None:
            return Prediction(end, target)
        seconds, joules = (self._interval([None if m is None else m[k] for m in moments]) for k in (0, 1))
        return Prediction(end, target, seconds, joules)

    def plain(self) -> dict[str, Any]:
        """As plain values, for `calibration.json`."""
        fits = {"looked": self.looked.plain(), "blind": self.blind.plain()}
        return {**fits, "curves": dict(self.curves), "apart": round(self.apart, 6), "situations": self.situations}

    @staticmethod
    def _interval(found: Sequence[float | None]) -> Interval:
        """From the middle, the early and the late course; infinity where one never gets there."""
        middle, early, late = (math.inf if one is None else one for one in found)
        return Interval(middle, early, late)


def reaches(
    curve: Sequence[float], start: float, end: float | None, target: float,
    steps: Sequence[tuple[float, float, float, float]],
) -> tuple[float, float] | None:  # fmt: skip
    """Seconds and joules until a curve from `start` to `end` is at the target; None if it never is."""
    if end is None or end < target or not steps:
        return None
    scores = start + (end - start) * np.asarray(curve)
    place = int(np.argmax(scores >= target)) if (scores >= target).any() else len(scores) - 1
    if place and scores[place] > scores[place - 1]:
        part = (target - scores[place - 1]) / (scores[place] - scores[place - 1])
        at = (place - 1 + min(1.0, max(0.0, float(part)))) / (len(curve) - 1)
    else:
        at = place / (len(curve) - 1)
    passes = np.array([0.0, *(step[0] for step in steps)])
    wanted = at * passes[-1]
    seconds, joules = (float(np.interp(wanted, passes, [0.0, *(step[k] for step in steps)])) for k in (1, 2))
    return seconds, joules


@lru_cache(maxsize=1)
def calibration() -> Calibration | None:
    """The calibration that comes with Potluck; None if there is none."""
    file = resources.files("potluck.planner").joinpath("calibration.json")
    if not file.is_file():
        return None
    plain = json.loads(file.read_text(encoding="utf-8"))
    return Calibration(
        Fit.of(plain["looked"]), Fit.of(plain["blind"]), plain["curves"], plain["apart"], plain["situations"]
    )
