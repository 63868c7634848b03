"""A bandwidth floor: the server cuts off clients whose link is slower.

ClusterFL section 8.1.1 drops clients below 4 Mbit/s. Whether a client is cut off is a pure function of its number and
the moment, like the trace of its link. It returns as soon as the trace is fast enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from potluck.devices.draws import uniform
from potluck.devices.profile import Link

_INSIDE = 1e-6  # seconds past the edge of a step, so that rounding cannot put the moment before it


@dataclass(frozen=True)
class Floor:
    """Has the methods of `Availability`; `number` gives the client its position in the trace."""

    link: Link
    least: float  # bit/s from the client

    @cached_property
    def _good(self) -> NDArray[np.bool_]:
        """Return for each step of the trace whether it is fast enough; one step for a steady link."""
        factors = (1.0,) if self.link.trace is None else self.link.trace.factors
        return np.asarray(factors) * self.link.up >= self.least

    @cached_property
    def _ahead(self) -> NDArray[np.float64]:
        """Return for each step the number of steps until that changes; infinity if it never does."""
        good = self._good
        ahead = np.full(len(good), np.inf)
        for k in range(2 * len(good) - 1, -1, -1):  # two periods, so that the last step sees the first
            here, after = k % len(good), (k + 1) % len(good)
            ahead[here] = 1.0 if good[here] != good[after] else ahead[after] + 1.0
        return ahead

    def available(self, number: int, at: float) -> bool:
        return bool(self.available_many([number], at)[0])

    def available_many(self, numbers: ArrayLike, at: float) -> NDArray[np.bool_]:
        return np.asarray(self._good[self._step(numbers, at)[0]])

    def next_change_many(self, numbers: ArrayLike, at: float) -> NDArray[np.float64]:
        """Return the first moment after `at` when each client is cut off or returns; infinity if never."""
        step, into = self._step(numbers, at)
        seconds = np.inf if self.link.trace is None else self.link.trace.seconds
        return np.asarray(at + self._ahead[step] * seconds - into + _INSIDE)

    def _step(self, numbers: ArrayLike, at: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the step of the trace of each client, and how far into it."""
        whole = np.atleast_1d(np.asarray(numbers, dtype=np.int64))
        trace = self.link.trace
        if trace is None:
            return np.zeros(whole.shape, dtype=np.int64), np.zeros(whole.shape)
        moment = (at + uniform(whole, "trace") * trace.period) % trace.period
        step = np.minimum((moment / trace.seconds).astype(np.int64), len(trace.factors) - 1)
        return step, moment - step * trace.seconds
