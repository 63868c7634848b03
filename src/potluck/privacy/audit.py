"""What an attacker can prove: lower bounds on epsilon from guesses, and from scores of members and others.

`bound` is Theorem 5.2 of Steinke, Nasr and Jagielski, "Privacy Auditing with One (1) Training Run", NeurIPS 2023: who
guesses r of m independent coins and gets v right has shown an epsilon, up to a small probability of luck. `separated`
is the attack of Yeom et al., CSF 2018, a threshold on a score, with Clopper and Pearson's bounds on its error rates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, binom

from potluck import keys

LUCK = 0.05  # probability that a bound is wrong
MOST = 50.0  # the largest epsilon that is looked for
Floats = NDArray[np.floating]


def bound(right: int, guesses: int, canaries: int, delta: float, luck: float = LUCK) -> float:
    """The largest epsilon that this many right guesses rule out; 0 where they prove nothing."""

    def chance(epsilon: float) -> float:
        """At most so likely are as many right guesses under (epsilon, delta)."""
        share = 1.0 / (1.0 + math.exp(-epsilon))
        slips = np.cumsum(binom.pmf(right - np.arange(1, right + 1), guesses, share))
        alpha = float(np.max(slips / np.arange(1, right + 1), initial=0.0))
        return float(binom.sf(right - 1, guesses, share)) + 2.0 * canaries * delta * alpha

    if right == 0 or chance(0.0) > luck:
        return 0.0
    low, high = 0.0, MOST
    while high - low > 1e-4:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if chance(middle) <= luck else (low, middle)
    return low


@dataclass(frozen=True)
class Guessed:
    """Canaries that were in or out by a coin each, and what the attacker made of their scores."""

    canaries: int
    guesses: int
    right: int
    epsilon: float  # lower bound


def guess(scores: Floats, inside: NDArray[np.bool_], delta: float) -> Guessed:
    """Guess the third with the highest scores in and the third with the lowest out; pass on the rest."""
    count = len(scores)
    some = max(1, count // 3)
    order = np.argsort(scores, kind="stable")
    right = int(inside[order[-some:]].sum() + (~inside[order[:some]]).sum())
    return Guessed(count, 2 * some, right, bound(right, 2 * some, count, delta))


@dataclass(frozen=True)
class Separated:
    """How well a score tells members from others."""

    auc: float  # probability that a member has the higher score
    epsilon: float  # lower bound


def separated(members: Floats, others: Floats, delta: float, luck: float = LUCK) -> Separated:
    """Score members against others. The threshold is chosen on one half of the scores and judged on the other."""
    draw = keys.rng("halves")
    members, others = draw.permutation(members), draw.permutation(others)
    both = np.concatenate([members, others])
    ranks = np.argsort(np.argsort(both, kind="stable"), kind="stable") + 1.0
    auc = (ranks[: len(members)].sum() - len(members) * (len(members) + 1) / 2) / (len(members) * len(others))
    m, o = len(members) // 2, len(others) // 2
    marks = np.quantile(both, np.linspace(0.02, 0.98, 49))
    gains = [_log_ratio((members[:m] > mark).mean(), (others[:o] > mark).mean(), delta, 1.0 / m) for mark in marks]
    mark = marks[int(np.argmax(gains))]
    hits, false = int((members[m:] > mark).sum()), int((others[o:] > mark).sum())
    least = beta.ppf(luck / 2, hits, len(members) - m - hits + 1) if hits else 0.0
    most = beta.ppf(1 - luck / 2, false + 1, len(others) - o - false) if false < len(others) - o else 1.0
    return Separated(float(auc), max(0.0, _log_ratio(float(least), float(most), delta, 0.0)))


def _log_ratio(hits: float, false: float, delta: float, floor: float) -> float:
    """log((hits - delta) / false), the epsilon that two rates show."""
    return math.log(max(hits - delta, 1e-12) / max(false, floor, 1e-12))
