"""Candidates: settings drawn from a space. The first candidate is always the settings as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from potluck import keys
from potluck.spaces import Space, Value

Settings = dict[str, Value]  # by dotted names, without `method.` in front
MOST_TRIES = 50  # draws for each new candidate: a small space has no more


@dataclass(frozen=True)
class Candidate:
    number: int
    settings: Settings

    @property
    def default(self) -> bool:
        """Whether these are the settings as they are."""
        return self.number == 0


class Sampler(Protocol):
    wave: int  # candidates drawn before the scores of the previous ones are wanted; 0: all at once

    def ask(self, count: int) -> list[Settings]:
        """Draw up to `count` new candidates, fewer if the space has no more."""

    def tell(self, told: Sequence[tuple[Settings, float]]) -> None:
        """Take the scores of the candidates of the last draw, in their order; the default settings may come first."""


class Spread:
    """Candidates spread evenly over the space: the additive sequence of Roberts (2018), shifted by the seed.

    Its steps are powers of the root of x^(d+1) = x + 1, the golden ratio for one setting. So any first few candidates
    cover the space.
    """

    wave = 0

    def __init__(self, space: Space, default: Settings, *key: int | str) -> None:
        self._space = space
        root = 2.0
        for _ in range(60):
            root = (1.0 + root) ** (1.0 / (len(space) + 1))
        self._steps = [root ** -(i + 1) for i in range(len(space))]
        self._at = [float(share) for share in keys.rng(*key).random(len(space))]
        self._seen = [default]

    def ask(self, count: int) -> list[Settings]:
        found: list[Settings] = []
        for _ in range(MOST_TRIES * count):
            if len(found) == count:
                break
            self._at = [(at + step) % 1.0 for at, step in zip(self._at, self._steps, strict=True)]
            drawn = {name: one.at(at) for at, (name, one) in zip(self._at, self._space.items(), strict=True)}
            if drawn not in self._seen:
                self._seen.append(drawn)
                found.append(drawn)
        return found

    def tell(self, told: Sequence[tuple[Settings, float]]) -> None: ...
