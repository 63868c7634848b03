"""Test predictions on the archive: every data set is predicted by what the other sets taught.

`seen_by_others` makes the predictions, `table` compares them with what the full runs did, and with simple rivals.
`fitted` is the calibration from all sets, which comes with Potluck.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from potluck.planner import look as looks
from potluck.planner.interval import COVER, Interval
from potluck.planner.predict import POINTS, Calibration, Fit, Prediction, Seen, Strengths, odds

NEAR = 0.01  # a recommendation this close to the best is a hit
ASYNCHRONOUS = ("fedbuff", "echopfl")
GRID = [
    Strengths(*each) for each in itertools.product((1.0, 3.0, 10.0, 30.0, 100.0), (3.0, 10.0, 30.0), (0.1, 1.0, 10.0))
]


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

    @property
    def target(self) -> float:
        """What times are predicted to: 95 % of the best end."""
        return 0.95 * max(self.ends.values())

    def end(self, method: str) -> float:
        """The mean accuracy at the end of the full runs."""
        return float(np.mean([one["scores"][-1] for one in self.full[method]]))

    @property
    def ends(self) -> dict[str, float]:
        return {method: self.end(method) for method in self.methods}

    @property
    def seen(self) -> Seen:
        looks = {name: one["scores"] for name, one in self.look.items() if one.get("scores")}
        return Seen(self.facts, looks)


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
        elif one["kind"] == "look" and one["seed"] == looks.SEED:
            there.look[one["method"]] = _cut(one)
    names = {method for one in found.values() for method in one.full}
    return {name: one for name, one in found.items() if one.facts and one.has(names) and one.seen.looks}


def _cut(look: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a longer look that a plan sees: a tenth of the run. Without a step in it, nothing."""
    if not look.get("scores"):
        return look
    most = looks.SHARE * look["passes"][-1] / look["share"] * (1 + 1e-3)
    count = sum(passes <= most for passes in look["passes"])
    if count < 2:
        return {}
    return {**look, "passes": look["passes"][:count], "scores": look["scores"][:count]}


def fitted(found: Sequence[Situation], grid: Sequence[Strengths] = GRID) -> Calibration:
    """Learn from these situations. Strengths are chosen, and errors measured, on data sets that a fit had not seen."""
    tried = [(strengths, _left_out(found, strengths)) for strengths in grid]
    strengths, errors = min(tried, key=lambda one: float(np.mean([abs(e) for row in one[1] for e in row.values()])))
    wrong = [odds(run["scores"][-1]) - odds(there.end(method)) + off
             for there, row in zip(found, errors, strict=True) for method, off in row.items()
             for run in there.full[method]]  # fmt: skip
    apart = [a - b for row in errors for i, a in enumerate(row.values()) for b in list(row.values())[:i]]
    facts = {name: [one.facts[name] for one in found] for name in ("classes", "rows", "skew", "clients")}
    first = Calibration(
        Fit.to([one.seen for one in found], [one.ends for one in found], strengths),
        error=float(np.quantile(np.abs(wrong), _cover(found))),
        apart=float(np.std(apart)),
        late=1.0,
        curves=_curves(found),
        ranges={name: (min(values), max(values)) for name, values in facts.items()},
        situations=len(found),
        strengths=strengths,
    )
    return replace(first, late=_late(found, first))


def _cover(found: Sequence[Situation]) -> float:
    """The quantile of errors on n data sets within which a new set's errors are with a probability of COVER.

    Situations of one data set err alike, so data sets count, as in conformal prediction: a new one is the n+1st.
    """
    sets = len({one.data for one in found})
    return min(1.0, COVER * (sets + 1) / sets)


def _left_out(found: Sequence[Situation], strengths: Strengths) -> list[dict[str, float]]:
    """By situation and method: log-odds at the end minus those predicted by the other data sets."""
    fits = {}
    for name in {one.data for one in found}:
        others = [one for one in found if one.data != name]
        fits[name] = Fit.to([one.seen for one in others], [one.ends for one in others], strengths)
    return [{m: odds(end) - fits[one.data].at(one.seen, m) for m, end in one.ends.items()} for one in found]


def _late(found: Sequence[Situation], known: Calibration) -> float:
    """The factor within which four fifths of the times to a target are, where it is reached as predicted."""
    ratios = []
    for there in found:
        target = there.target
        for method in there.methods:
            made = known.predict(there.seen, method, target, steps_of(there.dry[method][0]))
            if made is None or made.seconds is None or not 0 < made.seconds.value < np.inf:
                continue
            moments = [_reached(run, target) for run in there.full[method]]
            ratios += [abs(math.log(when / made.seconds.value)) for when in moments if when is not None]
    return float(np.exp(np.quantile(ratios, COVER))) if ratios else 1.0


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
    usual: Mapping[str, float] = field(default_factory=dict)  # the mean end of each method on the other data sets

    @property
    def best(self) -> float:
        return max(self.situation.end(method) for method in self.predictions)

    def hit(self, method: str) -> bool:
        """Whether a recommendation is within a point of the best."""
        return self.situation.end(method) >= self.best - NEAR


def seen_by_others(found: Mapping[str, Situation], grid: Sequence[Strengths] = GRID) -> list[Judged]:
    """Predict every situation from those of other data sets."""
    judged = []
    for name in sorted({one.data for one in found.values()}):
        others = [one for one in found.values() if one.data != name]
        experience = fitted(others, grid)
        usual = {m: float(np.mean([one.end(m) for one in others])) for m in experience.fit.offsets}
        for title, there in found.items():
            if there.data != name:
                continue
            made = {}
            for method in there.methods:
                prediction = experience.predict(there.seen, method, there.target, steps_of(there.dry[method][0]))
                assert prediction is not None
                made[method] = prediction
            judged.append(Judged(title, there, made, there.target, usual))
    return judged


def steps_of(dry: Mapping[str, Any]) -> list[tuple[float, float, float, float]]:
    curve = dry["steps"]
    return list(zip(curve["passes"], curve["virtual"], curve["joules"], [0.0] * len(curve["passes"]), strict=True))


def tested(experience: Calibration, judged: Sequence[Judged]) -> Calibration:
    """The calibration with what the back-test found, so that a plan leaves out what a simple rival does better."""
    rows = accuracies(judged)
    errors = {name: (row["planner"], row["mean elsewhere"], row["runs"]) for name, row in rows.items() if name != "all"}
    when = times(judged)
    return replace(experience, errors=errors, reached=(when["foreseen whether"], when["runs"]))


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
    """Mean errors in accuracy and the coverage of the intervals.

    The rivals take the look's last value, and the method's mean end on the other data sets.
    """
    rows: dict[str, list[tuple[float, float, float, bool]]] = defaultdict(list)
    for one in judged:
        for method, found in one.predictions.items():
            end, seen = one.situation.end(method), one.situation.seen.looks.get(method)
            last = end if seen is None else seen[-1]
            wrong = (abs(found.accuracy.value - end), abs(last - end), abs(one.usual[method] - end))
            for run in one.situation.full[method]:
                for name in (method, "all"):
                    rows[name].append((*wrong, found.accuracy.holds(run["scores"][-1])))
    names = ("planner", "last value", "mean elsewhere", "80 % interval holds")
    return {
        name: {"runs": len(part), **dict(zip(names, np.mean(part, axis=0).tolist(), strict=True))}
        for name, part in rows.items()
    }


def recommendations(judged: Sequence[Judged]) -> dict[str, tuple[float, float]]:
    """By who recommends: the share of situations within a point of the best, and the mean loss in points."""
    rivals: dict[str, Callable[[Judged], str]] = {
        "planner": lambda one: max(one.predictions, key=lambda m: one.predictions[m].accuracy.value),
        "best at the look": lambda one: max(one.predictions, key=lambda m: one.situation.seen.looks.get(m, [0.0])[-1]),
    }
    names = sorted({method for one in judged for method in one.predictions})
    rivals["best elsewhere"] = lambda one: max(one.predictions, key=lambda m: one.usual[m])
    rivals |= {f"always {name}": lambda one, name=name: name for name in names}  # type: ignore[misc]
    found = {}
    for title, choose in rivals.items():
        lost = [one.best - one.situation.end(choose(one)) for one in judged]
        found[title] = (float(np.mean([one.hit(choose(one)) for one in judged])), 100 * float(np.mean(lost)))
    return found | {"a full run of each, another seed": _by_full_runs(judged)}


def _by_full_runs(judged: Sequence[Judged]) -> tuple[float, float]:
    """What ten times the compute is worth: choose by the full runs of one seed, judged by another."""
    hits, lost = [], []
    for one in judged:
        ends = {method: [run["scores"][-1] for run in one.situation.full[method]] for method in one.predictions}
        for k, other in ((0, -1), (-1, 0)):
            chosen = max(ends, key=lambda method, k=k: ends[method][k])  # type: ignore[misc]
            lost.append(max(each[other] for each in ends.values()) - ends[chosen][other])
            hits.append(lost[-1] <= NEAR)
    return float(np.mean(hits)), 100 * float(np.mean(lost))


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
