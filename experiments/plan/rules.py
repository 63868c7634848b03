"""Is there a better rule for the recommended method? Rules are chosen and judged on data sets they have not seen.

    python experiments/plan/rules.py

For each data set of the archive: the rule that recommends best on the other sets, each predicted by the rest, is fitted
to all the others and recommends there. What that choice reaches is the honest figure; the best of all rules,
found on the sets that judge it, is printed beside it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from potluck.planner import archive, backtest
from potluck.planner.backtest import NEAR, Situation
from potluck.planner.predict import odds

HERE = Path(__file__).parent
Floats = NDArray[np.float64]
Rule = Callable[[Sequence[Situation], Situation], Floats]  # what is known, and where: a score of each method

METHODS = ("clusterfl", "ditto", "fedavg", "fedbuff", "ftl", "local")
SCALES = {"odds": odds, "points": float}
FACTS = {
    "none": (),
    "facts": ("classes", "rows", "skew", "clients"),
    "gain": ("gain", "alone"),
    "both": ("classes", "rows", "skew", "clients", "gain", "alone"),
}


def about(there: Situation, names: Sequence[str]) -> Floats:
    looks = {name: odds(there.look[name]["scores"][-1]) for name in METHODS if there.look[name].get("scores")}
    middle = float(np.mean(list(looks.values())))
    known = {
        **{name: float(np.log(there.facts[name])) for name in ("classes", "rows", "clients")},
        "skew": there.facts["skew"],
        "gain": looks.get("ditto", middle) - looks.get("fedavg", middle),  # what a model of one's own gives early
        "alone": looks.get("local", middle) - looks.get("fedavg", middle),  # what training alone gives early
    }
    return np.array([known[name] for name in names])


def looked(there: Situation) -> Floats:
    """Each method's look beside the mean of them; 0 where there is none."""
    found = np.array([odds(s[-1]) if (s := there.look[name].get("scores")) else np.nan for name in METHODS])
    return np.nan_to_num(found - np.nanmean(found))


def ends(there: Situation, scale: str) -> Floats:
    found = np.array([SCALES[scale](there.end(name)) for name in METHODS])
    return found - found.mean()


def ridge(scale: str, facts: str, strength: float) -> Rule:
    """Each method's contrast by an offset, its own slopes on some facts, and how it looked."""

    def rule(known: Sequence[Situation], there: Situation) -> Floats:
        names = FACTS[facts]
        raw = np.array([about(one, names) for one in (*known, there)])
        z = (raw - raw[:-1].mean(0)) / np.maximum(raw[:-1].std(0), 1e-6)
        shown = np.array([looked(one) for one in (*known, there)])
        shown -= shown[:-1].mean(0)
        table = np.hstack([np.ones((len(z), 1)), z])
        y = np.array([ends(one, scale) for one in known])
        drawn = np.diag([1.0, *[strength] * len(names)])
        found = np.zeros(len(METHODS))
        for k in range(len(METHODS)):
            x = np.hstack([table, shown[:, k : k + 1]])
            own = np.block(
                [[drawn, np.zeros((len(drawn), 1))], [np.zeros((1, len(drawn))), np.ones((1, 1)) * strength]]
            )
            found[k] = x[-1] @ np.linalg.solve(x[:-1].T @ x[:-1] + own, x[:-1].T @ y[:, k])
        return found

    return rule


def nearest(scale: str, facts: str, count: int) -> Rule:
    """The mean contrasts in the most alike situations."""

    def rule(known: Sequence[Situation], there: Situation) -> Floats:
        raw = np.array([about(one, FACTS[facts]) for one in (*known, there)])
        z = (raw - raw[:-1].mean(0)) / np.maximum(raw[:-1].std(0), 1e-6)
        near = np.argsort(((z[:-1] - z[-1]) ** 2).sum(1))[:count]
        return np.asarray(np.mean([ends(known[i], scale) for i in near], axis=0))

    return rule


def planner(known: Sequence[Situation], there: Situation) -> Floats:
    """The rule of `potluck plan`."""
    experience = backtest.fitted(known, backtest.GRID[::4])
    return np.array([experience.fit.at(there.seen, name) for name in METHODS])


RULES: dict[str, Rule] = {
    **{f"ridge {' '.join(map(str, each))}": ridge(*each) for each in itertools.product(SCALES, FACTS, (10.0, 100.0))},
    **{
        f"nearest {' '.join(map(str, each))}": nearest(*each)
        for each in itertools.product(SCALES, ("facts", "gain", "both"), (6,))
    },
}


def hits(rule: Rule, known: Sequence[Situation], judged: Sequence[Situation]) -> list[tuple[bool, float]]:
    found = []
    for there in judged:
        reached = np.array([there.end(name) for name in METHODS])
        lost = float(reached.max() - reached[int(np.argmax(rule(known, there)))])
        found.append((lost <= NEAR, lost))
    return found


def by_set(rule: Rule, found: Sequence[Situation]) -> list[tuple[bool, float]]:
    """Every set by what the others teach."""
    return [
        one
        for name in sorted({each.data for each in found})
        for one in hits(rule, [e for e in found if e.data != name], [e for e in found if e.data == name])
    ]


def told(found: Sequence[tuple[bool, float]]) -> str:
    hit, lost = np.mean(found, axis=0)
    return f"within a point in {100 * hit:.0f} %, loses {100 * lost:.1f} points"


def main() -> None:
    found = list(backtest.situations(archive.read(HERE / "archive")).values())
    print(f"{len(found)} situations, {len(RULES)} rules beside the planner's")
    print(f"the planner's own: {told(by_set(planner, found))}")
    scored = {name: by_set(rule, found) for name, rule in RULES.items()}
    means = {name: np.mean(one, axis=0) for name, one in scored.items()}
    best = max(means, key=lambda name: (means[name][0], -means[name][1]))
    print(f"the best of all rules, chosen on the sets that judge it: {best}: {told(scored[best])}")
    nested, chosen = [], []
    for name in sorted({one.data for one in found}):
        others = [one for one in found if one.data != name]
        inner = {title: np.mean(by_set(rule, others), axis=0) for title, rule in RULES.items()}
        title = max(inner, key=lambda one: (inner[one][0], -inner[one][1]))
        chosen.append(title)
        nested += hits(RULES[title], others, [one for one in found if one.data == name])
    print(f"chosen without the set that judges it: {told(nested)}; chosen were {', '.join(sorted(set(chosen)))}")


if __name__ == "__main__":
    main()
