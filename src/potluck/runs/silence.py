"""Notice a server program that receives answers and never yields: nothing is recorded, evaluated or saved then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from potluck.fleet import Arrival, ClientId, Lost, Message

LEAST = 1000  # answers without a yield before the user is warned
PER_CLIENT = 3  # the limit for large fleets: a round may ask each client once or twice


class CountedFleet:
    """A fleet that counts the answers a server program receives between two yields."""

    def __init__(self, fleet: Any, method: str, say: Callable[[str], None]) -> None:
        self._fleet = fleet
        self._method = method
        self._say = say
        self._answers = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fleet, name)

    def yielded(self) -> None:
        self._answers = 0

    def receive(self, until: float | None = None) -> Arrival | Lost | None:
        found: Arrival | Lost | None = self._fleet.receive(until)
        self._count(found is not None)
        return found

    def gather(self, tasks: Mapping[ClientId, Message], until: float | None = None) -> Sequence[Arrival]:
        found: Sequence[Arrival] = self._fleet.gather(tasks, until)
        self._count(len(tasks))
        return found

    def _count(self, answers: int) -> None:
        most = max(LEAST, PER_CLIENT * len(self._fleet.clients))
        before, self._answers = self._answers, self._answers + answers
        if before < most <= self._answers:
            self._say(
                f"method {self._method!r}: received {most:,} answers and yielded no state. Nothing is recorded, "
                "evaluated or saved until its server program yields; yield the state after each round or arrival."
            )
