"""A fleet that notes what a server program asks of it: the tasks, the answers, and whether the clock matters to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from potluck.fleet import Arrival, ClientId, Fleet, Local, Lost, Message, Profile

SILENCE = 2_000  # calls of the fleet without a yield; a method of this size needs a few dozen


class Watched:
    """Pass every call on to a fleet and note it. A method cannot tell the difference: this is a `Fleet`, too."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._calls = 0  # since the last yield
        self.messages: list[Message] = []  # tasks, notes and updates
        self.answers: list[tuple[float, Arrival | Lost]] = []  # each with the moment at which the method got it
        self.by_the_clock = False  # whether the method has looked at a time, or answers one client at a time

    def yielded(self) -> None:
        self._calls = 0

    @property
    def now(self) -> float:
        self.by_the_clock = True
        return self._fleet.now

    @property
    def home(self) -> Local:
        return self._fleet.home

    @property
    def clients(self) -> Mapping[ClientId, Profile]:
        return self._fleet.clients

    @property
    def idle(self) -> Sequence[ClientId]:
        self._called()
        return self._fleet.idle

    @property
    def resting(self) -> Collection[ClientId]:
        return self._fleet.resting

    @property
    def progress(self) -> float:
        return self._fleet.progress

    def send(self, task: Message, to: ClientId, legs: int = 1) -> None:
        self._called()
        self.messages.append(task)
        self._fleet.send(task, to, legs)

    def post(self, note: Message, to: Collection[ClientId]) -> None:
        self._called()
        self.messages.append(note)
        self._fleet.post(note, to)

    def receive(self, until: float | None = None) -> Arrival | Lost | None:
        self._called()
        self.by_the_clock = True
        answer = self._fleet.receive(until)
        return None if answer is None else self._noted(answer)

    def gather(self, tasks: Mapping[ClientId, Message], until: float | None = None) -> list[Arrival]:
        self._called()
        self.by_the_clock |= until is not None
        self.messages += tasks.values()
        return [self._noted(answer) for answer in self._fleet.gather(tasks, until)]

    def spend(self, seconds: float, what: str = "") -> None:
        self._fleet.spend(seconds, what)

    def _called(self) -> None:
        self._calls += 1
        assert self._calls <= SILENCE, f"server: asked the fleet {SILENCE} times and yielded no state in between."

    def _noted(self, answer: Any) -> Any:
        self.answers.append((self._fleet.now, answer))
        if not isinstance(answer, Arrival):
            return answer
        self.messages.append(answer.update)
        timed = _Timed(**{field.name: getattr(answer, field.name) for field in dataclasses.fields(answer)})
        object.__setattr__(timed, "seen_by", self)
        return timed


class _Timed(Arrival):
    """An arrival that notes when a method reads its times: then another clock may lead to another model."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("at", "sent"):
            watched = vars(self).get("seen_by")
            if watched is not None:
                watched.by_the_clock = True
        return super().__getattribute__(name)
