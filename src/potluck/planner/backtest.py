"""Test predictions on the archive: every data set is predicted by what the other sets taught.

`seen_by_others` makes the predictions, `table` compares them with what the full runs did, and with simple rivals.
`fitted` is the calibration from all sets, which comes with Potluck.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from potluck.planner.interval import COVER, Interval
from potluck.planner.predict import POINTS, Calibration, Fit, Prediction, Seen, odds

STRENGTH = 1.0  # of the ridge
NEAR = 0.01  # a recommendation this close to the best is a hit
ASYNCHRONOUS = ("fedbuff", "echopfl")


@dataclass
class Situation:
    """What the archive has of one situation."""

    data: str
    facts: Mapping[str, float] = field(default_factory=dict)
    full: dict[str, list[Mapping[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    dry: dict[str, dict[int, Mapping[str, Any]]] = field(default_factory=lambda: defaultdict(dict))
    look: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def methods(self) -> list[str]:
        return [name for name in self.full if self.look.get(name) is not None]

    def has(self, methods: Iterable[str]) -> bool:
        """Whether it has looks, dry runs and full runs of all these methods, with equally many seeds."""
        seeds = {len(self.full[name]) for name in methods}
        return len(seeds) == 1 and all(name in self.look and len(self.dry[name]) > 1 for name in methods)

    def end(self, method: str) -> float:
        """The mean accuracy at the end of the full runs."""
        return float(np.mean([one["scores"][-1] for one in self.full[method]]))

    def seen(self, method: str) -> Seen:
        return Seen(method, self.facts, self.look[method].get("scores"))


def situations(records: Iterable[Mapping[str, Any]]) -> dict[str, Situation]:
    """Sort records by situation; one that lacks a method or a record of one is not finished and left out."""
    found: dict[str, Situation] = {}
    for one in records:
        there = found.setdefault(one["situation"], Situation(one["situation"].partition("/")[0]))
        if one["kind"] == "facts":
            there.facts = {name: one[name] for name in ("clients", "rows", "classes", "skew")}
        elif one["kind"] == "full":
            there.full[one["method"]].append(one)
        elif one["kind"] == "dry":
            there.dry[one["method"]][one["seed"]] = one
        else:
            there.look[one["method"]] = one
    names = {method for one in found.values() for method in one.full}
    return {name: one for name, one in found.items() if one.facts and one.has(names)}


def fitted(found: Sequence[Situation]) -> Calibration:
    """Learn from these situations. Errors are those of data sets that the fit had not seen."""
    plain = _learned(found)
    sets = sorted({one.data for one in found})
    if len(sets) < 3:
        return plain
    errors: dict[bool, list[float]] = {True: [], False: []}
    apart = []
    for name in sets:
        inner = _learned([one for one in found if one.data != name])
        for there in (one for one in found if one.data == name):
            wrong = []
            for method in there.methods:
                seen = there.seen(method)
                ends = [odds(run["scores"][-1]) for run in there.full[method]]
                errors[False] += [abs(end - inner.blind.at(replace(seen, scores=None))) for end in ends]
                if seen.scores is not None:
                    foreseen = inner.looked.at(seen)
                    errors[True] += [abs(end - foreseen) for end in ends]
                    wrong.append(odds(there.end(method)) - foreseen)
            apart += [a - b for i, a in enumerate(wrong) for b in wrong[:i]]
    widths = {kind: float(np.quantile(values, COVER)) if values else 2.0 for kind, values in errors.items()}
    return replace(
        plain,
        looked=replace(plain.looked, error=widths[True]),
        blind=replace(plain.blind, error=widths[False]),
        apart=float(np.std(apart)) if apart else 1.0,
    )


def _learned(found: Sequence[Situation]) -> Calibration:
    pairs = [(there.seen(method), there.end(method)) for there in found for method in there.methods]
    looked = [(seen, end) for seen, end in pairs if seen.scores is not None]
    blind = [(replace(seen, scores=None), end) for seen, end in pairs]
    seeing, blindly = (Fit.to([s for s, _ in part], [e for _, e in part], STRENGTH) for part in (looked, blind))
    return Calibration(seeing, blindly, _curves(found), apart=1.0, situations=len(found))


def _curves(found: Sequence[Situation]) -> dict[str, list[float]]:
    """The mean way from the first score to the last, at equal shares of the passes; `all` is over all methods."""
    ways: dict[str, list[Any]] = defaultdict(list)
    grid = np.linspace(0, 1, POINTS)
    for there in found:
        for method, runs in there.full.items():
            for run in runs:
                scores, passes = np.array(run["scores"]), np.array(run["curve"]["passes"])
                if scores[-1] - scores[0] < 0.05 or not passes[-1]:  # a flat curve has no course
                    continue
                way = np.interp(grid, passes / passes[-1], (scores - scores[0]) / (scores[-1] - scores[0]))
                ways[method].append(way)
                ways["all"].append(way)
    curves = {name: np.mean(rows, axis=0) for name, rows in ways.items()}
    return {name: [round(float(v), 4) for v in np.maximum.accumulate(curve)] for name, curve in curves.items()}


@dataclass(frozen=True)
class Judged:
    """One situation, predicted without its data set."""

    name: str
    situation: Situation
    predictions: Mapping[str, Prediction]
    target: float

    @property
    def best(self) -> float:
        return max(self.situation.end(method) for method in self.predictions)

    def hit(self, method: str) -> bool:
        """Whether a recommendation is within a point of the best."""
        return self.situation.end(method) >= self.best - NEAR


def seen_by_others(found: Mapping[str, Situation]) -> list[Judged]:
    """Predict every situation from those of other data sets."""
    judged = []
    for name in sorted({one.data for one in found.values()}):
        experience = fitted([one for one in found.values() if one.data != name])
        for title, there in found.items():
            if there.data != name:
                continue
            target = 0.95 * max(there.end(method) for method in there.methods)
            made = {m: experience.predict(there.seen(m), target, _steps(there.dry[m][0])) for m in there.methods}
            judged.append(Judged(title, there, made, target))
    return judged


def _steps(dry: Mapping[str, Any]) -> list[tuple[float, float, float, float]]:
    curve = dry["steps"]
    return list(zip(curve["passes"], curve["virtual"], curve["joules"], [0.0] * len(curve["passes"]), strict=True))


def costs(found: Iterable[Situation]) -> dict[str, dict[str, float]]:
    """How far dry runs are from full runs: of the same seed, and as a prediction of other seeds."""
    groups: dict[str, list[tuple[Mapping[str, Any], Mapping[str, Any]]]] = defaultdict(list)
    inside: dict[str, list[bool]] = defaultdict(list)
    for there in found:
        for method, runs in there.full.items():
            kind = "asynchronous" if method in ASYNCHRONOUS else "synchronous"
            groups[kind] += [(there.dry[method][0], run) for run in runs if run["seed"] == 0]
            others = [dry for seed, dry in there.dry[method].items() if seed]
            groups[f"{kind}, other seeds"] += [(others[0], run) for run in runs]
            for figure in ("seconds", "joules"):
                around = Interval.of([dry[figure] for dry in others])
                inside[f"{kind}, other seeds"] += [around.holds(run[figure]) for run in runs]
    return {name: _errors(pairs, inside.get(name)) for name, pairs in sorted(groups.items())}


def _errors(
    pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], inside: Sequence[bool] | None
) -> dict[str, float]:
    def off(read: Callable[[Mapping[str, Any]], float]) -> Any:
        return np.array([abs(read(dry) - read(run)) / max(1e-9, read(run)) for dry, run in pairs])

    moved, time, joules = off(lambda r: r["up"] + r["down"]), off(lambda r: r["seconds"]), off(lambda r: r["joules"])
    found = {"runs": len(pairs), "bytes exact": float((moved == 0).mean()), "bytes, worst": float(moved.max())}
    for name, values in (("time", time), ("joules", joules)):
        found |= {f"{name}, median": float(np.median(values)), f"{name}, worst": float(values.max())}
        found |= {f"{name} within {100 * most:g} %": float((values <= most).mean()) for most in (0.02, 0.1)}
    return found | ({"80 % interval holds": float(np.mean(inside))} if inside else {})


def accuracies(judged: Sequence[Judged]) -> dict[str, dict[str, float]]:
    """Errors in accuracy points and the coverage of the intervals; the rival takes the look's last value."""
    rows: dict[str, list[tuple[float, float, bool]]] = defaultdict(list)
    for one in judged:
        for method, found in one.predictions.items():
            end, seen = one.situation.end(method), one.situation.seen(method).scores
            held = [found.accuracy.holds(run["scores"][-1]) for run in one.situation.full[method]]
            last = end if seen is None else seen[-1]
            for name in (method, "all"):
                rows[name] += [(abs(found.accuracy.value - end), abs(last - end), inside) for inside in held]
    return {
        name: {
            "runs": len(part),
            "planner": float(np.mean([row[0] for row in part])),
            "last value": float(np.mean([row[1] for row in part])),
            "80 % interval holds": float(np.mean([row[2] for row in part])),
        }
        for name, part in rows.items()
    }


def recommendations(judged: Sequence[Judged]) -> dict[str, tuple[float, float]]:
    """By who recommends: the share of situations within a point of the best, and the mean loss in points."""
    rivals: dict[str, Callable[[Judged], str]] = {
        "planner": lambda one: max(one.predictions, key=lambda m: one.predictions[m].accuracy.value),
        "best at the look": lambda one: max(one.predictions, key=lambda m: (one.situation.seen(m).scores or [0.0])[-1]),
    }
    names = sorted({method for one in judged for method in one.predictions})
    rivals |= {f"always {name}": lambda one, name=name: name for name in names}  # type: ignore[misc]
    found = {}
    for title, choose in rivals.items():
        able = [(one, choose(one)) for one in judged if choose(one) in one.predictions]
        lost = [one.best - one.situation.end(method) for one, method in able]
        found[title] = (float(np.mean([one.hit(method) for one, method in able])), 100 * float(np.mean(lost)))
    return found


def times(judged: Sequence[Judged]) -> dict[str, float]:
    """Time to 95 % of the best accuracy: is it foreseen whether a run gets there, and when?"""
    right, off, inside = [], [], []
    for one in judged:
        for method, found in one.predictions.items():
            for run in one.situation.full[method]:
                when = _reached(run, one.target)
                foreseen = found.seconds is not None and np.isfinite(found.seconds.value)
                right.append(foreseen == (when is not None))
                if found.seconds is not None and when is not None:
                    inside.append(found.seconds.holds(when))
                    if foreseen:
                        off.append(abs(found.seconds.value - when) / when)
    return {
        "runs": len(right),
        "foreseen whether": float(np.mean(right)),
        "median error of the time": float(np.median(off)),
        "80 % interval holds": float(np.mean(inside)),
    }


def _reached(run: Mapping[str, Any], target: float) -> float | None:
    for score, when in zip(run["scores"], run["curve"]["virtual"], strict=True):
        if score >= target and when > 0:
            return float(when)
    return None
