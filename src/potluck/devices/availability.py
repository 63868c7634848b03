"""When a client can be reached: on and off in turn, as a pure function of the client's number and the moment.

Each client's time is cut into cycles of equal length, shifted by a phase of its own. Within a cycle it is
reachable in one window whose length is drawn with mean `on_share` and whose place is drawn too. No state, no
order: a million clients can be asked about any moment at once, and a resumed run sees the same absences.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from potluck.devices.draws import uniform
from potluck.errors import BadInput


@dataclass(frozen=True)
class Availability:
    on_share: float  # share of the time a client is reachable
    period: float  # seconds of one cycle, on and off together

    def __post_init__(self) -> None:
        if not 0 < self.on_share <= 1:
            raise BadInput(f"on_share: {self.on_share} was given, a share above 0 and up to 1 is allowed.")
        if not 0 < self.period < float("inf"):
            raise BadInput(f"period: {self.period} was given, seconds above 0 are allowed.")

    def available(self, seed_number: int, at: float) -> bool:
        return bool(self.available_many([seed_number], at)[0])

    def next_change(self, seed_number: int, at: float) -> float:
        """The first moment after `at` when the client comes or goes; infinity if it never does."""
        return float(self.next_change_many([seed_number], at)[0])

    def available_many(self, numbers: ArrayLike, at: ArrayLike) -> NDArray[np.bool_]:
        numbers, at = _aligned(numbers, at)
        if self.on_share == 1:
            return np.ones(numbers.shape, dtype=np.bool_)
        found = np.zeros(numbers.shape, dtype=np.bool_)
        for start, end in self._windows(numbers, at):
            found |= (start <= at) & (at < end)
        return found

    def next_change_many(self, numbers: ArrayLike, at: ArrayLike) -> NDArray[np.float64]:
        numbers, at = _aligned(numbers, at)
        soonest = np.full(numbers.shape, np.inf)
        if self.on_share == 1:
            return soonest
        for window in self._windows(numbers, at):
            for edge in window:
                soonest = np.where(edge > at, np.minimum(soonest, edge), soonest)
        return soonest

    def _windows(
        self, numbers: NDArray[np.int64], at: NDArray[np.float64]
    ) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """The windows of the cycle around `at` and of its neighbours.

        The neighbours are there because rounding may put a moment into the cycle beside its own. Edges are
        computed the same way whatever the moment is: a client asked at its `next_change` has just changed.
        """
        phase = uniform(numbers, "phase")
        widest, narrowest = min(1.0, 2 * self.on_share), max(0.0, 2 * self.on_share - 1)
        cycle = np.floor(at / self.period - phase).astype(np.int64)
        windows = []
        for near in (cycle - 1, cycle, cycle + 1):
            length = widest - (widest - narrowest) * uniform(numbers, near, "length")
            start = near + phase + (1.0 - length) * uniform(numbers, near, "place")
            windows.append((start * self.period, (start + length) * self.period))
        return windows


def _aligned(numbers: ArrayLike, at: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    whole = np.atleast_1d(np.asarray(numbers, dtype=np.int64))
    return whole, np.broadcast_to(np.asarray(at, dtype=np.float64), whole.shape)
