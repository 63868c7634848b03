"""How the speed of a link varies: a factor on its rates that changes in steps and repeats."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np

from potluck import keys
from potluck.devices.draws import uniform
from potluck.errors import BadInput, Code, must_be


@dataclass(frozen=True)
class Trace:
    """`factors[k]` holds from `k * seconds` to `(k + 1) * seconds`; after the last factor the first one follows."""

    factors: tuple[float, ...]
    seconds: float
    title: str = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.seconds) and self.seconds > 0):
            raise must_be(Code.DEVICE_FIGURE, "trace.seconds", "above 0", self.seconds)
        if not all(math.isfinite(factor) and factor >= 0 for factor in self.factors):
            raise BadInput(Code.DEVICE_FIGURE, "trace: every factor must be a finite number, 0 or more.")
        if not any(self.factors):
            raise BadInput(
                Code.DEVICE_FIGURE, "trace: at least one factor must be above 0, or nothing would ever arrive."
            )

    @property
    def period(self) -> float:
        return len(self.factors) * self.seconds

    @cached_property
    def _area(self) -> list[float]:
        """Return the integral of the factor from 0 to the start of each step, and to the end of the period."""
        return list(accumulate((factor * self.seconds for factor in self.factors), initial=0.0))

    def at(self, moment: float) -> float:
        """Return the factor at a moment."""
        return self.factors[int(moment % self.period / self.seconds) % len(self.factors)]

    def stretch(self, work: float, at: float) -> float:
        """Return the exact time of work that takes `work` seconds at factor 1 and starts at the moment `at`."""
        if work <= 0.0:
            return 0.0
        begin = at % self.period
        step = min(int(begin / self.seconds), len(self.factors) - 1)
        done = self._area[step] + (begin - step * self.seconds) * self.factors[step]
        periods, left = divmod(done + work, self._area[-1])
        if left == 0.0:  # the end of the work is the earliest moment that has seen enough, not the next period's start
            periods, left = periods - 1.0, self._area[-1]
        last = bisect_left(self._area, left) - 1
        end = last * self.seconds + (left - self._area[last]) / self.factors[last]
        return max(0.0, periods * self.period + end - begin)

    def phase(self, number: int) -> float:
        """Return where in the period the client with this number starts, so that clients do not vary together."""
        return float(uniform([number], "trace")[0]) * self.period


def synthetic(
    seconds: float,
    steps: int,
    sigma: float,
    correlation: float,
    floor: float,
    ceiling: float,
    seed: int,
    title: str,
) -> Trace:
    """Make an artificial trace: a log-normal walk with mean 1."""
    noise = keys.rng("trace", seed).standard_normal(steps)
    log_factor = np.empty(steps)
    level = sigma * float(noise[0])  # start in the stationary distribution, so that the period has no warm-up
    for k in range(steps):
        level = level if k == 0 else correlation * level + math.sqrt(1 - correlation**2) * sigma * float(noise[k])
        log_factor[k] = level
    factors = np.clip(np.exp(log_factor - sigma**2 / 2), floor, ceiling)
    return Trace(tuple(float(factor) for factor in factors / factors.mean()), seconds, title)
