"""Every pair of methods, seed by seed: the difference, two intervals, and p-values with and without Holm's correction.

Runs of one seed share fleet, split and first weights, so a difference is taken within a seed, and its spread over seeds
is the noise. The t interval takes the differences for draws from a normal distribution. The bootstrap interval does
not: it draws the seeds again with replacement, `RESAMPLES` times, and keeps the middle 95 % of the means (percentile
bootstrap, always the same draws). Below ten seeds it is optimistic: with three, it is about half as wide as it should
be. So verdicts follow the t interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from potluck.report.figures.holm import adjusted

CONFIDENCE = 0.95
FEWEST = 3  # common seeds that an interval needs
FAIR = 10  # seeds from which the bootstrap is no longer optimistic
RESAMPLES = 10_000
SAME = 1e-12  # differences whose standard deviation is below this are equal but for rounding

STEADY = "the difference is the same with every seed, so the seeds may change nothing that matters here"


@dataclass(frozen=True)
class Interval:
    low: float
    high: float


@dataclass(frozen=True)
class Pair:
    """One method minus another, over the seeds that both finished. Accuracies are shares of 1."""

    method: str
    other: str
    seeds: list[int]
    by_seed: list[float]  # in the order of the seeds
    mean: float | None  # None without a common seed
    std: float | None  # n - 1; None with fewer than two seeds
    t: Interval | None  # 95 %; None with fewer than FEWEST seeds, as the next two
    bootstrap: Interval | None
    p: float | None  # paired t-test, two-sided, for this pair alone
    p_best: float | None = None  # with Holm's correction among the pairs that include the best method
    p_all: float | None = None  # with Holm's correction among all pairs
    caution: str = ""


def all_pairs(means: Mapping[str, Mapping[int, float]], order: Sequence[str], best: str | None = None) -> list[Pair]:
    """Each pair once, the earlier method of `order` minus the later one."""
    known = [name for name in order if means.get(name)]
    found = {(a, b): pair(a, b, means[a], means[b]) for a, b in combinations(known, 2)}
    chances = {key: one.p for key, one in found.items() if one.p is not None}
    among_all = adjusted(chances)
    with_best = adjusted({key: p for key, p in chances.items() if best in key})
    return [replace(one, p_best=with_best.get(key), p_all=among_all.get(key)) for key, one in found.items()]


def chosen_pairs(means: Mapping[str, Mapping[int, float]], asked: Sequence[tuple[str, str]]) -> list[Pair]:
    """These pairs only; Holm's correction is among them."""
    found = {(a, b): pair(a, b, means[a], means[b]) for a, b in asked if means.get(a) and means.get(b)}
    corrected = adjusted({key: one.p for key, one in found.items() if one.p is not None})
    return [replace(one, p_all=corrected.get(key)) for key, one in found.items()]


def pair(method: str, other: str, mine: Mapping[int, float], theirs: Mapping[int, float]) -> Pair:
    """`mine` minus `theirs`, by seed."""
    seeds = sorted(mine.keys() & theirs.keys())
    gaps = np.array([mine[seed] - theirs[seed] for seed in seeds], dtype=float)
    if not seeds:
        return Pair(method, other, seeds, [], None, None, None, None, None)
    mean = float(gaps.mean())
    std = deviation(gaps) if len(seeds) > 1 else None
    if std is None or len(seeds) < FEWEST:
        return Pair(method, other, seeds, gaps.tolist(), mean, std, None, None, None)
    caution = STEADY if std == 0.0 and mean else ""
    t, p = interval(gaps), chance(gaps.tolist())
    return Pair(method, other, seeds, gaps.tolist(), mean, std, t, bootstrap(gaps), p, caution=caution)


def deviation(gaps: NDArray[np.float64]) -> float:
    std = float(gaps.std(ddof=1))
    return 0.0 if std < SAME else std


def interval(gaps: NDArray[np.float64]) -> Interval:
    """The 95 % interval of the paired t-test."""
    half = float(stdtrit(len(gaps) - 1, (1 + CONFIDENCE) / 2)) * deviation(gaps) / math.sqrt(len(gaps))
    mean = float(gaps.mean())
    return Interval(mean - half, mean + half)


def bootstrap(gaps: NDArray[np.float64]) -> Interval:
    """The 95 % percentile bootstrap interval of the mean."""
    means = gaps[_draws(len(gaps))].mean(axis=1)
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(float(low), float(high))


@cache
def _draws(count: int) -> NDArray[np.int64]:
    """The same draws for every pair with so many seeds, so that a - b and b - a have mirrored intervals."""
    return np.random.Generator(np.random.Philox(key=count)).integers(0, count, (RESAMPLES, count))


def chance(gaps: Sequence[float]) -> float:
    """The two-sided p-value of the paired t-test. Without any spread it is 0, or 1 if there is no difference."""
    values = np.array(gaps, dtype=float)
    mean, std = float(values.mean()), deviation(values)
    if std == 0.0:
        return 0.0 if abs(mean) >= SAME else 1.0
    return float(2.0 * stdtr(len(values) - 1, -abs(mean) / std * math.sqrt(len(values))))
