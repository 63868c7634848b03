"""Average ranks of methods over seeds or datasets, and how far apart ranks must be (Demšar, JMLR 7, 2006).

Within each seed (or dataset) the best method has rank 1; equal ones share the mean of their ranks. Friedman's test asks
whether the average ranks differ at all. Two methods differ if their average ranks are further apart than Nemenyi's
critical difference. Ranks forget by how much a method wins; the differences in points say that.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy.special import chdtrc

from potluck.report.figures.holm import RISK
from potluck.report.figures.signed_rank import midranks
from potluck.units import plural

FEWEST = 5  # seeds or datasets from which a critical difference is given
FAIR = 10  # from which the tests are close to what they promise
# The studentised range at 5 % and infinitely many degrees of freedom over the square root of 2, for 2, 3, ... methods.
_STUDENTISED = (1.960, 2.344, 2.569, 2.728, 2.850, 2.948, 3.031, 3.102, 3.164, 3.219, 3.268)

Block = TypeVar("Block", bound=Hashable)


@dataclass(frozen=True)
class Ranks:
    """Average ranks over blocks; a block is a seed or a dataset."""

    over: str  # "seed" or "dataset"
    blocks: list[str]  # in which every method has a figure
    left_out: list[str]  # in which one has none
    average: dict[str, float]  # method -> average rank, the best first
    friedman: float | None  # chi-square; None with two methods or one block
    p: float | None  # of Friedman's test
    critical_difference: float | None  # None with fewer than FEWEST blocks
    alike: list[list[str]]  # methods that the critical difference does not tell apart, as large as they get
    caution: str

    @property
    def tells(self) -> bool:
        """Whether a picture says more than the difference of two methods, or the figures of one seed."""
        return len(self.average) > 2 and len(self.blocks) > 1


def ranks(values: Mapping[str, Mapping[Block, float]], over: str = "seed") -> Ranks | None:
    """Rank methods within each block, from method -> block -> value (more is better); None with fewer than two.

    Works over seeds of one comparison and over datasets: `values` may come from `over_datasets`.
    """
    known = {name: found for name, found in values.items() if found}
    if len(known) < 2:
        return None
    every = list(dict.fromkeys(block for found in known.values() for block in found))
    blocks = [block for block in every if all(block in found for found in known.values())]
    if not blocks:
        return None
    table = np.array([midranks(-np.array([found[block] for found in known.values()])) for block in blocks])
    average = dict(sorted(zip(known, table.mean(axis=0).tolist(), strict=True), key=lambda item: item[1]))
    statistic, p = friedman(table)
    gap = critical_difference(len(known), len(blocks)) if len(blocks) >= FEWEST else None
    return Ranks(
        over,
        [str(block) for block in blocks],
        [str(block) for block in every if block not in blocks],
        average,
        statistic,
        p,
        gap,
        [] if gap is None else cliques(average, gap),
        _caution(len(blocks), over),
    )


def over_datasets(accuracies: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Turn dataset -> method -> accuracy round, for `ranks`."""
    found: dict[str, dict[str, float]] = {}
    for data, by_method in accuracies.items():
        for method, value in by_method.items():
            found.setdefault(method, {})[data] = value
    return found


def friedman(table: np.ndarray) -> tuple[float | None, float | None]:
    """Friedman's chi-square with its correction for ties, and its p-value; `table` has a row of ranks per block."""
    blocks, methods = table.shape
    if methods < 3 or blocks < 2:
        return None, None
    ties = sum(float(count**3 - count) for row in table for count in np.unique(row, return_counts=True)[1])
    share = 1 - ties / (blocks * methods * (methods**2 - 1))
    if share <= 0:
        return 0.0, 1.0  # every method is equal in every block
    sums = table.sum(axis=0)
    plain = 12 / (blocks * methods * (methods + 1)) * float((sums**2).sum()) - 3 * blocks * (methods + 1)
    statistic = max(0.0, plain / share)
    return statistic, float(chdtrc(methods - 1, statistic))


def critical_difference(methods: int, blocks: int) -> float:
    """Nemenyi's: average ranks that are further apart differ at 5 %, for all pairs together."""
    return studentised(methods) * math.sqrt(methods * (methods + 1) / (6 * blocks))


def studentised(methods: int) -> float:
    """q of Nemenyi's test at 5 %: 2.569 for four methods."""
    if methods - 2 < len(_STUDENTISED):
        return _STUDENTISED[methods - 2]
    from scipy.stats import studentized_range  # takes a second to load, and few compare so many methods

    return float(studentized_range.ppf(1 - RISK, methods, math.inf)) / math.sqrt(2)


def cliques(average: Mapping[str, float], gap: float) -> list[list[str]]:
    """The largest groups of neighbours whose first and last are at most `gap` apart; single methods are no group."""
    names = sorted(average, key=lambda name: average[name])
    found: list[list[str]] = []
    reach = 0
    for i, first in enumerate(names):
        group = [name for name in names[i:] if average[name] - average[first] <= gap + 1e-12]
        if len(group) > 1 and i + len(group) > reach:
            found.append(group)
            reach = i + len(group)
    return found


def _caution(blocks: int, over: str) -> str:
    have = plural(blocks, over)
    if blocks < FEWEST:
        return (
            f"{have} {'is' if blocks == 1 else 'are'} too few for a critical difference: {FEWEST} or more are needed."
        )
    if blocks < FAIR:
        return f"With {have} the tests on ranks are rough: only large differences show."
    return ""
