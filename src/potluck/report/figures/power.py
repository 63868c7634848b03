"""How many seeds it takes to tell two methods apart, from the differences seen so far.

The smallest number of seeds with which a paired t-test at 5 % finds a difference of this size in 80 % of all tries. It
takes the mean and the standard deviation seen so far for the true ones. With few seeds both are rough, and so is this
number: it says whether to plan for five more seeds or for fifty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import nctdtr, stdtrit

from potluck.report.figures.holm import RISK
from potluck.report.figures.pairs import FEWEST, Pair
from potluck.units import plural

POWER = 0.8
MOST = 200  # seeds: beyond this, the difference does not matter in practice

APART, MORE, EQUAL, UNKNOWN = "told apart", "needs more seeds", "treat as equal", "too few seeds to say"


@dataclass(frozen=True)
class SeedsNeeded:
    """The seeds that one pair of methods has, and how many more it needs."""

    method: str
    other: str
    seeds: int  # that both have
    more: int | None  # 0 if the two are told apart already; None where `verdict` is EQUAL or UNKNOWN
    verdict: str  # APART, MORE, EQUAL or UNKNOWN
    text: str


def seeds_needed(pair: Pair) -> SeedsNeeded:
    """For one pair; it has enough if its p-value with Holm's correction is at most 5 %."""
    have = len(pair.seeds)

    def found(more: int | None, verdict: str, text: str) -> SeedsNeeded:
        return SeedsNeeded(pair.method, pair.other, have, more, verdict, text)

    if pair.mean is None or pair.std is None or pair.p is None:
        return found(None, UNKNOWN, f"needs at least {FEWEST} common seeds")
    corrected = pair.p_all if pair.p_best is None else pair.p_best
    if (pair.p if corrected is None else corrected) <= RISK:
        return found(0, APART, "enough seeds")
    needed = least_seeds(pair.mean, pair.std)
    if needed is None:
        return found(None, EQUAL, f"more than {MOST} seeds: treat them as equal")
    more = max(1, needed - have)
    return found(more, MORE, f"about {plural(more, 'more seed')}")


def least_seeds(mean: float, std: float) -> int | None:
    """The least number of seeds with enough power; None above MOST."""
    if std == 0.0:
        return FEWEST if mean else None
    return next((n for n in range(FEWEST, MOST + 1) if power(n, abs(mean) / std) >= POWER), None)


def power(seeds: int, effect: float) -> float:
    """The chance that a two-sided paired t-test at RISK finds an effect, given in standard deviations."""
    free, shift = seeds - 1, effect * math.sqrt(seeds)
    limit = float(stdtrit(free, 1 - RISK / 2))
    above, below = nctdtr(free, shift, limit), nctdtr(free, shift, -limit)
    # Far from 0, SciPy's lower tail is not a number where it is as good as 0.
    return float(1.0 - above + (0.0 if math.isnan(below) else below))
