"""Is a tenth of the compute worth more if it is spent unevenly? Short looks at all methods, longer ones at contenders.

    python experiments/plan/uneven.py              # all data sets of the archive
    python experiments/plan/uneven.py --first 10   # the first ten of archive.toml

A rule looks at some methods first, and predicts all ends as the planner does. Then it looks longer at the two or three
that it ranks first, and corrects each prediction by how far the longer look is from what was to be expected of it. How
much a surprise counts is a regression through 0 on data sets that its own predictions had not seen. No rule takes more
than a tenth of the passes of all full runs. The rule is chosen on the data sets that do not judge it, by the points
that it loses there; beside that stand all rules, and what other knowledge is worth.
"""

from __future__ import annotations

import argparse
import itertools
import tomllib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from potluck.planner import archive
from potluck.planner.backtest import NEAR
from potluck.planner.look import SEED
from potluck.planner.predict import Fit, Seen, Strengths, odds, share

HERE = Path(__file__).parent
METHODS = ("clusterfl", "ditto", "fedavg", "fedbuff", "ftl", "local")
OTHER = SEED + 500
GRID = [Strengths(*each) for each in itertools.product((3.0, 30.0), (10.0, 30.0), (0.1, 1.0, 10.0))]
NOBODY: frozenset[str] = frozenset()


@dataclass
class Situation:
    data: str
    facts: Mapping[str, float] = field(default_factory=dict)
    full: dict[str, list[float]] = field(default_factory=dict)
    look: dict[tuple[str, int], Mapping[str, Any]] = field(default_factory=dict)
    small: dict[int, Mapping[str, Any]] = field(default_factory=dict)  # FTL's runs in small, by passes

    @property
    def ends(self) -> dict[str, float]:
        return {name: float(np.mean(each)) for name, each in self.full.items()}

    @property
    def complete(self) -> bool:
        looks = all((name, seed) in self.look for name in METHODS for seed in (SEED, OTHER))
        return looks and len(self.small) == 4 and all(len(self.full.get(name, ())) == 2 for name in METHODS)

    def at(self, method: str, most: float, seed: int = SEED) -> tuple[float | None, float]:
        """The score after at most this share of a run, and the share."""
        one = self.look[method, seed]
        total = one["passes"][-1] / one["share"]
        steps = zip(one["passes"], one["scores"], strict=True)
        found = [(score, passes / total) for passes, score in steps if 0 < passes <= most * total * 1.001]
        return found[-1] if found else (None, 0.0)

    def lost(self, method: str) -> float:
        return max(self.ends.values()) - self.ends[method]


@dataclass(frozen=True)
class Rule:
    first: tuple[tuple[str, float], ...]  # method, and share of its run
    contenders: int = 0
    more: float = 0.0  # share for each contender
    small: bool = False  # FTL's longer look is a whole run in small, with its fine-tuning
    seeds: bool = False  # half of `more` goes to another seed
    by: str = "level"  # strengths by the errors of accuracies, or of contrasts between methods

    @property
    def name(self) -> str:
        first = ", ".join(f"{name} {most:g}" for name, most in self.first)
        then = f", then {self.more:g} more for {self.contenders}" if self.contenders else ""
        return f"{first}{then}{', in small' * self.small}{', half of it with another seed' * self.seeds} ({self.by})"


ALL = tuple((name, 0.1) for name in METHODS)
SHORT = tuple((name, 0.1 if name == "ditto" else 0.05) for name in METHODS)  # Ditto's steps have two passes
FEW = tuple((name, 0.05) for name in ("fedavg", "fedbuff", "local", "clusterfl"))  # FTL begins as FedAvg does
LATER = [(FEW, 2, 0.2), (FEW, 3, 0.1), (SHORT, 2, 0.1)]
RULES = [
    rule
    for by in ("level", "contrast")
    for rule in (
        Rule(ALL, by=by),
        *(Rule(*each, small=small, by=by) for small in (False, True) for each in LATER),
        Rule(FEW, 2, 0.1, seeds=True, by=by),
    )
]
FOUND: list[Situation] = []


def read(sets: Sequence[str]) -> list[Situation]:
    there: dict[str, Situation] = {}
    for one in archive.read(HERE / "archive"):
        at = there.setdefault(one["situation"], Situation(one["situation"].partition("/")[0]))
        if one["kind"] == "facts":
            at.facts = {name: one[name] for name in ("clients", "rows", "classes", "skew")}
        elif one["kind"] == "full":
            at.full.setdefault(one["method"], []).append(one["scores"][-1])
        elif one["kind"] == "look" and one.get("scores"):
            at.look[one["method"], one["seed"]] = one
        elif one["kind"].startswith("small") and one["seed"] == SEED:
            at.small[int(one["kind"].split()[1])] = one
    return [one for one in there.values() if one.data in sets and one.facts and one.complete]


@lru_cache(None)
def seen(i: int, first: tuple[tuple[str, float], ...]) -> Seen:
    scores = {name: FOUND[i].at(name, most)[0] for name, most in first}
    looks = {name: [score] for name, score in scores.items() if score is not None}
    if "fedavg" in looks:
        looks.setdefault("ftl", looks["fedavg"])
    return Seen(FOUND[i].facts, looks)


@lru_cache(None)
def longer(i: int, rule: Rule) -> dict[str, tuple[float, float]]:
    """By method: the longer look in log-odds, and what it costs beyond the first."""
    found = {}
    for name in METHODS:
        before = dict(rule.first).get(name, 0.0)
        if rule.seeds:
            (a, first), (b, second) = FOUND[i].at(name, 0.1), FOUND[i].at(name, rule.more, OTHER)
            if a is not None and b is not None:
                found[name] = ((odds(a) + odds(b)) / 2, max(0.0, first - before) + second)
        elif rule.small and name == "ftl":
            one = FOUND[i].small[4 if rule.more == 0.2 else 3]
            found[name] = (odds(one["scores"][-1]), one["share"])
        else:
            score, cost = FOUND[i].at(name, before + rule.more)
            if score is not None:
                found[name] = (odds(score), max(0.0, cost - before))
    return found


def known(without: frozenset[str]) -> list[int]:
    return [i for i, one in enumerate(FOUND) if one.data not in without]


@lru_cache(None)
def fit(rule: Rule, without: frozenset[str], strengths: Strengths, later: bool) -> Fit:
    """The planner's regression, of the ends or of what the longer looks show."""
    rows = known(without)
    reached = [
        {name: share(value) for name, (value, _) in longer(i, rule).items()} if later else FOUND[i].ends for i in rows
    ]
    return Fit.to([seen(i, rule.first) for i in rows], reached, strengths)


@lru_cache(None)
def left_out(rule: Rule, without: frozenset[str], strengths: Strengths, later: bool) -> dict[int, dict[str, float]]:
    """By situation, predicted without its data set."""
    found = {}
    for i in known(without):
        one = fit(rule, without | {FOUND[i].data}, strengths, later)
        found[i] = {name: one.at(seen(i, rule.first), name) for name in METHODS}
    return found


@lru_cache(None)
def strengths_of(rule: Rule, without: frozenset[str]) -> Strengths:
    def wrong(strengths: Strengths) -> float:
        errors = []
        for i, predicted in left_out(Rule(rule.first), without, strengths, False).items():
            off = np.array([odds(FOUND[i].ends[name]) - predicted[name] for name in METHODS])
            errors.append(np.abs(off if rule.by == "level" else off - off.mean()).mean())
        return float(np.mean(errors))

    return min(GRID, key=wrong)


def ranked(predicted: Mapping[str, float], count: int) -> list[str]:
    return sorted(METHODS, key=lambda name: -predicted[name])[:count]


@lru_cache(None)
def worth(rule: Rule, without: frozenset[str], strengths: Strengths) -> float:
    """What a surprise in the longer look is worth at the end."""
    ends = left_out(Rule(rule.first), without, strengths, False)
    looks = left_out(replace(rule, by="level"), without, strengths, True)
    both = whole = 1e-9
    for i, predicted in ends.items():
        there = longer(i, rule)
        off = {name: odds(FOUND[i].ends[name]) - predicted[name] for name in METHODS}
        shown = {name: there[name][0] - looks[i][name] for name in there}
        for a, b in itertools.combinations([one for one in ranked(predicted, rule.contenders) if one in there], 2):
            both += (off[a] - off[b]) * (shown[a] - shown[b])
            whole += (shown[a] - shown[b]) ** 2
    return max(0.0, both / whole)


def judged(rule: Rule, without: frozenset[str], rows: Sequence[int]) -> list[tuple[bool, float, float]]:
    """By situation: within a point of the best, points lost, and the share of all full runs that the looks took."""
    found = []
    plain = Rule(rule.first)  # what does not depend on the longer looks is computed once
    for i in rows:
        there, hidden = FOUND[i], without | {FOUND[i].data}
        strengths = strengths_of(replace(plain, by=rule.by), hidden)
        before = fit(plain, hidden, strengths, False)
        predicted = {name: before.at(seen(i, rule.first), name) for name in METHODS}
        took = sum(there.at(name, most)[1] for name, most in rule.first)
        asked = [name for name in ranked(predicted, rule.contenders) if name in longer(i, rule)]
        if asked:
            later, gain = fit(replace(rule, by="level"), hidden, strengths, True), worth(rule, hidden, strengths)
            shown = {name: longer(i, rule)[name][0] - later.at(seen(i, rule.first), name) for name in asked}
            predicted = {name: predicted[name] + gain * shown[name] for name in asked}
            took += sum(longer(i, rule)[name][1] for name in asked)
        lost = there.lost(max(predicted, key=lambda name: predicted[name]))
        found.append((lost <= NEAR + 1e-9, 100 * lost, took / len(METHODS)))
    return found


def told(found: Sequence[tuple[bool, float, float]]) -> str:
    hit, lost, took = np.mean(found, axis=0)
    most = max(one[2] for one in found)
    return f"{100 * hit:.0f} %, loses {lost:.1f} points, takes {100 * took:.1f} % (at most {100 * most:.1f} %)"


def bounds() -> None:
    """What is there to be known: full runs against each other, and long looks without an archive."""
    hits = []
    for one in FOUND:
        for a, b in ((0, 1), (1, 0)):
            chosen = max(METHODS, key=lambda name, a=a, one=one: one.full[name][a])  # type: ignore[misc]
            hits.append(max(each[b] for each in one.full.values()) - one.full[chosen][b] <= NEAR + 1e-9)
    print(f"the best of full runs with one seed, judged by the other: {100 * np.mean(hits):.0f} %")
    for most, seeds in itertools.product((0.1, 0.4), (1, 2)):
        looks = [
            {name: sum(one.at(name, most, seed)[0] or 0.0 for seed in (SEED, OTHER)[:seeds]) for name in METHODS}
            for one in FOUND
        ]
        hit = [
            one.lost(max(METHODS, key=lambda name, each=each: each[name])) <= NEAR + 1e-9  # type: ignore[misc]
            for one, each in zip(FOUND, looks, strict=True)
        ]
        print(f"the leader after {100 * most:.0f} % of each run, {seeds} look seeds: {100 * np.mean(hit):.0f} %")


def main() -> None:
    warnings.simplefilter("ignore", RuntimeWarning)  # a method without a first look has no usual look
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--first", type=int, help="so many data sets (default: all)")
    first = parser.parse_args().first
    sets = list(tomllib.loads((HERE / "archive.toml").read_text(encoding="utf-8"))["sets"])[:first]
    FOUND[:] = read(sets)
    print(f"{len(FOUND)} situations of {len(sets)} data sets, {len(RULES)} rules")
    bounds()
    for rule in RULES:
        print(f"{rule.name}: {told(judged(rule, NOBODY, range(len(FOUND))))}", flush=True)
    nested: list[tuple[bool, float, float]] = []
    for name in sorted({one.data for one in FOUND}):
        others = known(frozenset({name}))
        inner = {rule: np.mean(judged(rule, frozenset({name}), others), axis=0)[1] for rule in RULES}
        here = [i for i, one in enumerate(FOUND) if one.data == name]
        nested += judged(min(RULES, key=lambda rule: inner[rule]), NOBODY, here)
    print(f"chosen without the data set that judges it: {told(nested)}")


if __name__ == "__main__":
    main()
