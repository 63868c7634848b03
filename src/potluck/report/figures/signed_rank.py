"""Wilcoxon's signed-rank test, exact also with ties: do differences lean to one side?

SciPy's test falls back to a normal approximation where two differences are equal in size, which accuracies on few test
rows often are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

MOST_EXACT = 200  # differences; the normal approximation is as good beyond
FEWEST = 6  # differences other than 0 that can give a p-value below 5 %


def signed_rank(differences: Sequence[float]) -> float:
    """The two-sided p-value; differences of exactly 0 say nothing and are left out. 1 if nothing is left."""
    values = np.array([value for value in differences if value], dtype=float)
    if not len(values):
        return 1.0
    ranks = midranks(np.abs(values))
    above = float(ranks[values > 0].sum())
    if len(values) > MOST_EXACT:
        return _approximate(ranks, above)
    return _exact(ranks, above)


def midranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 1 for the smallest; equal values share the mean of their ranks."""
    _, group, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((last - (count - 1) / 2)[group], dtype=float)


def _exact(ranks: NDArray[np.float64], above: float) -> float:
    """Each difference is as likely above 0 as below: count the sums of ranks that this gives."""
    doubled = np.rint(2 * ranks).astype(int)
    chances = np.zeros(int(doubled.sum()) + 1)
    chances[0] = 1.0
    for rank in doubled:
        shifted = np.zeros_like(chances)
        shifted[rank:] = chances[:-rank]
        chances = (chances + shifted) / 2
    at = round(2 * above)
    return min(1.0, 2 * min(float(chances[: at + 1].sum()), float(chances[at:].sum())))


def _approximate(ranks: NDArray[np.float64], above: float) -> float:
    middle, spread = ranks.sum() / 2, math.sqrt(float((ranks**2).sum()) / 4)
    return float(2 * ndtr(-abs(above - middle) / spread))
