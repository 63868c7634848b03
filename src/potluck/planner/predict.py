"""Predict the accuracy at the end of a run from short looks and the experience of the archive.

Accuracies are predicted as log-odds, in two parts. The *level* of a situation is what its methods reach on average: a
ridge regression on the data's facts and on how far the looks came. The *contrast* of a method is how much better or
worse than the level it ends: an offset of its own, slopes of its own on the same facts, and how much better or worse it
looked. A look of one method stands for the level after taking off what that method usually shows beside the others.

Intervals come from errors on data sets that the regression had not seen. The time to a target follows from the mean
course of each method's curve in the archive and from the dry run. `calibration.json` holds the fit;
`experiments/plan/backtest.py` makes it from the archive. Where the archive has nothing like a situation, nothing is
predicted (`Calibration.lacks`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from potluck.planner.interval import COVER, Interval

Floats = NDArray[np.float64]
LOWEST, HIGHEST = 0.02, 0.99  # log-odds beyond are noise of a few test rows
FEATURES = ("chance", "rows", "skew", "clients", "seen")
POINTS = 21  # of a curve
BEYOND = 1.25  # how far outside the archive's range a fact may be, as a factor


@dataclass(frozen=True)
class Seen:
    """What is known of a situation before full runs."""

    facts: Mapping[str, float]
    looks: Mapping[str, Sequence[float]]  # by method: scores, the first before training


@dataclass(frozen=True)
class Prediction:
    """The accuracy at the end; with a target, seconds and joules until it is reached, None where it is not.

    `untold` says why the accuracy is not shown: it ranks methods, but is no better than a simple rival as a figure.
    """

    accuracy: Interval
    untold: str = ""
    target: float | None = None
    seconds: Interval | None = None
    joules: Interval | None = None


def odds(value: float) -> float:
    share = min(HIGHEST, max(LOWEST, value))
    return math.log(share / (1 - share))


def share(value: float) -> float:
    return 1 / (1 + math.exp(-value))


@dataclass(frozen=True)
class Strengths:
    """What draws coefficients to 0."""

    level: float = 3.0
    slopes: float = 10.0
    look: float = 1.0


@dataclass(frozen=True)
class Fit:
    """The two regressions. Facts are standardised."""

    usual: Mapping[str, float]  # a method's look beside the mean of all, in log-odds
    mean: Floats
    scale: Floats
    level: Floats  # intercept first
    offsets: Mapping[str, float]
    slopes: Mapping[str, Sequence[float]]
    look: float  # what a better look than usual is worth at the end

    @classmethod
    def to(cls, seen: Sequence[Seen], ends: Sequence[Mapping[str, float]], strengths: Strengths) -> Fit:
        """Fit to the accuracies at the ends of full runs, by situation and method."""
        names = sorted({method for one in ends for method in one})
        usual = {name: float(np.mean([_beside(one)[name] for one in seen if name in one.looks])) for name in names}
        x = np.array([_features(one, usual) for one in seen])
        mean, scale = x.mean(0), np.maximum(x.std(0), 1e-6)
        z = (x - mean) / scale
        y = [{name: odds(end) for name, end in one.items()} for one in ends]
        levels = np.array([np.mean(list(one.values())) for one in y])
        level = _ridge(np.hstack([np.ones((len(z), 1)), z]), levels, [1e-9, *[strengths.level] * len(FEATURES)])
        rows, contrasts = [], []
        for one, about, reached, whole in zip(seen, z, y, levels, strict=True):
            looked = _looked(one, usual)
            for name, end in reached.items():
                own = np.array([float(name == other) for other in names])
                rows.append(np.concatenate([own, np.outer(own, about).ravel(), [looked.get(name, 0.0)]]))
                contrasts.append(end - whole)
        drawn = [*[1.0] * len(names), *[strengths.slopes] * len(names) * len(FEATURES), strengths.look]
        found = _ridge(np.array(rows), np.array(contrasts), drawn)
        k = len(names)
        slopes = found[k:-1].reshape(k, len(FEATURES))
        return cls(
            usual, mean, scale, level, dict(zip(names, found[:k].tolist(), strict=True)),
            {name: slopes[i].tolist() for i, name in enumerate(names)}, float(found[-1]),
        )  # fmt: skip

    def at(self, seen: Seen, method: str) -> float:
        """The prediction for a method of the archive, in log-odds."""
        z = (_features(seen, self.usual) - self.mean) / self.scale
        level = float(self.level[0] + z @ self.level[1:])
        own = self.offsets[method] + float(z @ np.asarray(self.slopes[method]))
        return level + own + self.look * _looked(seen, self.usual).get(method, 0.0)

    def plain(self) -> dict[str, Any]:
        return {one.name: _rounded(getattr(self, one.name)) for one in fields(self)}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Fit:
        arrays = {name: np.array(plain[name], dtype=float) for name in ("mean", "scale", "level")}
        return cls(**{**plain, **arrays})


def _ridge(table: Floats, y: Floats, drawn: Sequence[float]) -> Floats:
    return np.asarray(np.linalg.solve(table.T @ table + np.diag(drawn), table.T @ y))


def _beside(seen: Seen) -> dict[str, float]:
    """By method: its look beside the mean of all looks, in log-odds."""
    last = {name: odds(scores[-1]) for name, scores in seen.looks.items()}
    mean = float(np.mean(list(last.values())))
    return {name: value - mean for name, value in last.items()}


def _level(seen: Seen, usual: Mapping[str, float]) -> float:
    """How far the looks came, as all methods of the archive would have come on average."""
    return float(np.mean([odds(scores[-1]) - usual[name] for name, scores in seen.looks.items() if name in usual]))


def _looked(seen: Seen, usual: Mapping[str, float]) -> dict[str, float]:
    """By method: how much better than usual it looked here."""
    level = _level(seen, usual)
    return {name: odds(scores[-1]) - usual[name] - level for name, scores in seen.looks.items() if name in usual}


def _features(seen: Seen, usual: Mapping[str, float]) -> Floats:
    about = seen.facts
    known = {
        "chance": odds(1 / about["classes"]),
        "rows": math.log(about["rows"]),
        "skew": about["skew"],
        "clients": math.log(about["clients"]),
        "seen": _level(seen, usual),
    }
    return np.array([known[name] for name in FEATURES])


@dataclass(frozen=True)
class Calibration:
    """The experience of the archive."""

    fit: Fit
    error: float  # half the width of the 80 % interval, in log-odds
    apart: float  # standard deviation of the error of a difference between two methods, in log-odds
    late: float  # factor on the time to a target within which it is in 80 % of the cases
    curves: Mapping[str, Sequence[float]]  # share of the way from the first score to the last, at equal passes
    ranges: Mapping[str, Sequence[float]]  # of the facts in the archive
    situations: int
    strengths: Strengths = Strengths()
    passes: float = 0.0  # of the runs in the archive
    model: str = ""  # of the runs in the archive
    errors: Mapping[str, Sequence[float]] = field(default_factory=dict)  # back-test: planner's, mean elsewhere, runs
    reached: Sequence[float] = ()  # back-test: how often it was right whether a target is reached; of so many runs

    def untold(self, method: str) -> str:
        """Why a method's accuracy is not shown, in words; empty where the back-test says that it may be."""
        if method not in self.errors:
            return "its predictions were not tested"
        own, mean, _ = self.errors[method]
        if own < mean:
            return ""
        return f"the mean of other data was closer, {100 * mean:.1f} points off against {100 * own:.1f}"

    @property
    def never_when(self) -> str:
        """Why no time to a target is predicted; empty where the back-test says that it may be."""
        if not self.reached:
            return "it was not tested"
        right, runs = self.reached
        told = f"whether a run gets there was foreseen in {100 * right:.0f} % of {runs:.0f} tested runs"
        return "" if right >= COVER else told

    def lacks(self, seen: Seen, model: str, passes: float) -> str:
        """Why nothing is predicted, in words; empty where the archive has situations like this."""
        if model != self.model:
            return f"its runs are with the model {self.model}"
        if not self.passes / BEYOND <= passes <= self.passes * BEYOND:
            return f"its runs have {self.passes:g} local passes"
        for name, (low, high) in self.ranges.items():
            if not low / BEYOND <= seen.facts[name] <= high * BEYOND:
                return f"it has {name} from {low:.3g} to {high:.3g}, here {seen.facts[name]:.3g}"
        if not seen.looks.keys() & self.fit.usual.keys():
            return f"it needs a look at one of {', '.join(sorted(self.fit.usual))}"
        return ""

    def predict(
        self, seen: Seen, method: str, target: float | None, steps: Sequence[tuple[float, float, float, float]]
    ) -> Prediction | None:
        """Predict a method's end, and with a target when it gets there; `steps` are those of its dry run."""
        if method not in self.fit.offsets:
            return None
        middle = self.fit.at(seen, method)
        edges = (middle - self.error, middle + self.error)
        low, high = (0.0 if edges[0] <= odds(0) else share(edges[0])), (1.0 if edges[1] >= odds(1) else share(edges[1]))
        end = Interval(share(middle), low, high)
        untold = self.untold(method)
        if target is None:
            return Prediction(end, untold)
        start = seen.looks[method][0] if method in seen.looks else 1 / seen.facts["classes"]
        curve = self.curves.get(method, self.curves["all"])
        moments = [reaches(curve, start, last, target, steps) for last in (end.value, end.high, end.low)]
        if moments[1] is None:
            return Prediction(end, untold, target)
        seconds, joules = (self._interval([None if m is None else m[k] for m in moments]) for k in (0, 1))
        return Prediction(end, untold, target, seconds, joules)

    def plain(self) -> dict[str, Any]:
        """As plain values, for `calibration.json`."""
        numbers = {name: _rounded(getattr(self, name)) for name in ("error", "apart", "late", "curves", "ranges")}
        about = {"situations": self.situations, "passes": self.passes, "model": self.model}
        about |= {"errors": _rounded(self.errors), "reached": _rounded(self.reached)}
        return {"fit": self.fit.plain(), **numbers, **about, "strengths": asdict(self.strengths)}

    def _interval(self, found: Sequence[float | None]) -> Interval:
        """From the middle, the early and the late course; infinity where one never gets there."""
        middle, early, late = (math.inf if one is None else one for one in found)
        if math.isinf(middle):
            return Interval(middle, early / self.late, late)
        return Interval(middle, min(early, middle / self.late), max(late, middle * self.late))


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


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [_rounded(one) for one in value]
    return round(float(value), 6)


@lru_cache(maxsize=1)
def calibration() -> Calibration | None:
    """The calibration that comes with Potluck; None if there is none."""
    file = resources.files("potluck.planner").joinpath("calibration.json")
    if not file.is_file():
        return None
    plain = json.loads(file.read_text(encoding="utf-8"))
    return Calibration(**{**plain, "fit": Fit.of(plain["fit"]), "strengths": Strengths(**plain["strengths"])})
