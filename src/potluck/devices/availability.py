"""When a client can be reached, as a pure function of the client's number and the moment.

Each client's time is cut into cycles of equal length, shifted by the client's phase. In each cycle the client is
reachable in one window; its length is drawn with mean `on_share`, and its position is drawn too. There is no state:
any moment can be computed for a million clients at once, and a resumed run sees the same absences.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from potluck.devices.draws import uniform
from potluck.errors import Code, must_be

_PART = 16_384


@dataclass(frozen=True)
class Availability:
    on_share: float  # share of the time a client is reachable
    period: float  # seconds of one cycle, on and off together

    def __post_init__(self) -> None:
        if not 0 < self.on_share <= 1:
            raise must_be(Code.DEVICE_FIGURE, "on_share", "above 0 and at most 1", self.on_share)
        if not 0 < self.period < float("inf"):
            raise must_be(Code.DEVICE_FIGURE, "period", "seconds above 0", self.period)

    def available(self, seed_number: int, at: float) -> bool:
        return bool(self.available_many([seed_number], at)[0])

    def next_change(self, seed_number: int, at: float) -> float:
        """Return the first moment after `at` when the client comes or goes; infinity if it never does."""
        return float(self.next_change_many([seed_number], at)[0])

    def available_many(self, numbers: ArrayLike, at: ArrayLike) -> NDArray[np.bool_]:
        numbers, at = _aligned(numbers, at)
        found = np.ones(numbers.shape, dtype=np.bool_)
        for part in self._parts(numbers):
            start, end = self._windows(numbers[part], at[part])
            found[part] = ((start <= at[part]) & (at[part] < end)).any(axis=0)
        return found

    def next_change_many(self, numbers: ArrayLike, at: ArrayLike) -> NDArray[np.float64]:
        numbers, at = _aligned(numbers, at)
        soonest = np.full(numbers.shape, np.inf)
        for part in self._parts(numbers):
            edges = np.concatenate(self._windows(numbers[part], at[part]))
            soonest[part] = np.where(edges > at[part], edges, np.inf).min(axis=0)
        return soonest

    def _parts(self, numbers: NDArray[np.int64]) -> list[slice]:
        """Split the work into pieces that fit the processor's cache; none for a client that is always there."""
        return [] if self.on_share == 1 else [slice(i, i + _PART) for i in range(0, numbers.size, _PART)]

    def _windows(
        self, numbers: NDArray[np.int64], at: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return start and end of the windows of the cycle around `at` and of its two neighbours, one row each.

        The neighbours are needed because rounding may put a moment into the next cycle. Edges are computed in the
        same way for every moment: at its `next_change` a client has just changed.
        """
        phase = uniform(numbers, "phase")
        widest, narrowest = min(1.0, 2 * self.on_share), max(0.0, 2 * self.on_share - 1)
        cycle = np.floor(at / self.period - phase).astype(np.int64) + np.array([[-1], [0], [1]])
        length = widest - (widest - narrowest) * uniform(numbers, cycle, "length")
        start = cycle + phase + (1.0 - length) * uniform(numbers, cycle, "place")
        return start * self.period, (start + length) * self.period


def _aligned(numbers: ArrayLike, at: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    whole = np.atleast_1d(np.asarray(numbers, dtype=np.int64))
    return whole, np.broadcast_to(np.asarray(at, dtype=np.float64), whole.shape)
