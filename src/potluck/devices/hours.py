"""The hours of the day at which devices train: at night, or while they charge.

Both are a window per client and day, as a pure function of the client's number and the moment. A night has the same
hours for everybody. Charging opens and lasts differently by client and day, within `spread` hours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from potluck.devices.draws import uniform
from potluck.errors import BadInput, Code, must_be

DAY = 86_400.0
WHEN = ("always", "night", "charging")
SPREAD = 1.5  # hours; an estimate of how far people's bedtimes are apart


@dataclass(frozen=True)
class Hours:
    """Has the methods of `Availability`."""

    opens: float  # hour of the day
    closes: float
    begins: float = 0.0  # hour of the day at the moment 0
    spread: float = 0.0  # hours by which opening and length may differ, either way

    def __post_init__(self) -> None:
        for name, hour in (("hours", self.opens), ("hours", self.closes), ("begins", self.begins)):
            if not 0 <= hour < 24:
                raise must_be(Code.DEVICE_FIGURE, f"fleet.{name}", "an hour from 0 to below 24", hour)
        if self.opens == self.closes:
            raise BadInput(Code.DEVICE_FIGURE, "fleet.hours: must be two different hours of the day.")
        if not self.spread < self.length < 24 - 3 * self.spread:
            allowed = f"between {self.spread:g} and {24 - 3 * self.spread:g} hours apart"
            raise must_be(Code.DEVICE_FIGURE, "fleet.hours", allowed, shown=f"{self.length:g} hours")

    @property
    def length(self) -> float:
        return (self.closes - self.opens) % 24

    def available(self, number: int, at: float) -> bool:
        return bool(self.available_many([number], at)[0])

    def available_many(self, numbers: ArrayLike, at: float) -> NDArray[np.bool_]:
        start, end = self._windows(numbers, at)
        return np.asarray(((start <= at) & (at < end)).any(axis=0))

    def next_change_many(self, numbers: ArrayLike, at: float) -> NDArray[np.float64]:
        """Return the first moment after `at` at which each client's window opens or closes."""
        edges = np.concatenate(self._windows(numbers, at))
        return np.asarray(np.where(edges > at, edges, np.inf).min(axis=0))

    def open_seconds(
        self, numbers: ArrayLike, start: NDArray[np.float64], end: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return for each client the seconds of [start, end] that are in its windows."""
        whole = np.atleast_1d(np.asarray(numbers, dtype=np.int64))
        found = np.zeros(whole.shape)
        if not whole.size:
            return found
        for day in range(int(np.floor(start.min() / DAY)) - 2, int(np.ceil(end.max() / DAY)) + 2):
            opens, closes = self._of_day(whole, np.full(whole.shape, day, dtype=np.int64))
            found += np.clip(np.minimum(closes, end) - np.maximum(opens, start), 0.0, None)
        return found

    def _windows(self, numbers: ArrayLike, at: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return start and end of the windows of the days around `at`, one row each."""
        whole = np.atleast_1d(np.asarray(numbers, dtype=np.int64))
        days = int(np.floor(at / DAY)) + np.arange(-2, 3, dtype=np.int64)[:, None]
        return self._of_day(*np.broadcast_arrays(whole, days))

    def _of_day(
        self, numbers: NDArray[np.int64], day: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        start: NDArray[np.float64] = np.asarray(day * 24.0 + self.opens - self.begins, dtype=np.float64)
        length = np.full(start.shape, self.length)
        if self.spread:
            start = start + self.spread * (2 * uniform(numbers, day, "opens") - 1)
            length = length + self.spread * (2 * uniform(numbers, day, "length") - 1)
        return start * 3600.0, (start + length) * 3600.0


def hours_of(when: str, hours: tuple[float, float], begins: float) -> Hours | None:
    """The windows of the settings `fleet.train_when`, `fleet.hours` and `fleet.begins`; None for always."""
    if when == "always":
        return None
    return Hours(hours[0], hours[1], begins, SPREAD if when == "charging" else 0.0)
