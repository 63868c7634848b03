"""A figure with the interval in which it will be with a probability of 80 %."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

COVER = 0.8


@dataclass(frozen=True)
class Interval:
    """A prediction; `low` and `high` are None where nothing says how far off it may be."""

    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """The first value, and where one more of the same kind will be: Student's prediction interval of all."""
        found = np.asarray(values, dtype=float)
        if len(found) < 2:
            return cls(float(found[0]))
        spread = float(stdtrit(len(found) - 1, (1 + COVER) / 2)) * found.std(ddof=1) * math.sqrt(1 + 1 / len(found))
        middle = float(found.mean())
        return cls(float(found[0]), min(float(found[0]), middle - spread), max(float(found[0]), middle + spread))

    def reaching(self, value: float) -> Interval:
        """The same, made long enough to hold a value."""
        low, high = (self.value if edge is None else edge for edge in (self.low, self.high))
        return Interval(self.value, min(low, value), max(high, value))

    def times(self, factor: float) -> Interval:
        low, high = (None if edge is None else edge * factor for edge in (self.low, self.high))
        return Interval(self.value * factor, low, high)

    def holds(self, value: float) -> bool:
        """Whether a value is inside; one without edges holds nothing but itself."""
        low, high = (self.value if edge is None else edge for edge in (self.low, self.high))
        return low <= value <= high
