"""Random choices of plain Python values, from a key: the same key always chooses the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from potluck import keys

T = TypeVar("T")


class Chance:
    """Draws one after another."""

    def __init__(self, *key: int | str) -> None:
        self._rng = keys.rng("lab", *key)

    def share(self) -> float:
        """A number in [0, 1)."""
        return float(self._rng.random())

    def whole(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return int(self._rng.integers(low, high + 1))

    def one(self, values: Sequence[T]) -> T:
        return values[self.whole(0, len(values) - 1)]

    def some(self, values: Sequence[T], count: int) -> list[T]:
        """Different ones of the values."""
        return [values[int(i)] for i in self._rng.permutation(len(values))[:count]]

    def noise(self, count: int) -> bytes:
        return self._rng.bytes(count)
