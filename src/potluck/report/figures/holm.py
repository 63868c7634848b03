"""Holm's correction: several comparisons at once find something by chance, so each must meet a stricter limit."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

RISK = 0.05  # the chance of one mistake or more among all comparisons

Name = TypeVar("Name", bound=Hashable)


def adjusted(chances: Mapping[Name, float]) -> dict[Name, float]:
    """The p-values after the correction: the k-th smallest of n times (n - k + 1), never below the one before.

    A comparison remains significant if its value is at most RISK (Holm, Scandinavian Journal of Statistics 6, 1979).
    """
    found: dict[Name, float] = {}
    least = 0.0
    for left, name in zip(range(len(chances), 0, -1), sorted(chances, key=lambda name: chances[name]), strict=True):
        least = max(least, min(1.0, left * chances[name]))
        found[name] = least
    return {name: found[name] for name in chances}
