"""Runs the legs of tasks in flight, as late as possible and as many at once as possible.

Durations are known before anything is computed, so the engine can wait. Tasks pile up until the result of one is
needed. Then all legs that have begun by that moment run together, as one wave, and the executor trains them in stacks.
That is why an asynchronous method costs about as much as a synchronous one. Waiting is safe because a leg cannot see
anything that happens after it begins. A leg reads mail that was delivered before it began, and it runs only when that
moment has passed. The first leg reads only mail from before its task was sent, so it may run at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from potluck import keys
from potluck.engines.chunks import Job
from potluck.engines.execute import Executor
from potluck.engines.local.boards import Boards, Outcome
from potluck.engines.local.conditions import Conditions
from potluck.engines.local.flight import Flight
from potluck.engines.local.mail import Letter, Mail, delivered
from potluck.engines.local.roster import Roster
from potluck.engines.local.swift import Swift, Swifts
from potluck.engines.log import Event, Log
from potluck.engines.results import Block, Result
from potluck.fleet import ClientId, Done, Message
from potluck.wire.gate import all_plausible, inspect


@dataclass(frozen=True)
class Legs:
    """What a leg needs to run: who works, with what, and where the result is noted."""

    roster: Roster
    executor: Executor
    boards: Boards
    mail: Mail
    private: Callable[[int], Any]  # client index -> its private state
    conditions: Conditions
    log: Log
    swifts: Swifts
    wants_own: Callable[[int], bool] = lambda client: True  # whether a client's model after training is kept

    def complete(self, needed: Flight | Swift, flights: Mapping[int, Flight | Swift], now: float) -> None:
        """Run waves until all legs of one flight are done."""
        while not needed.complete and not needed.lost:
            self.wave(flights.values(), now)

    def wave(self, flights: Iterable[Flight | Swift], now: float) -> None:
        """Run one leg of each flight whose next leg has begun. Boards work while the others are trained here."""
        wave = [flight for flight in flights if _due(flight, now)]
        known = self.roster.names
        names = [flight.name if isinstance(flight, Swift) else known[flight.client] for flight in wave]
        jobs = list(map(self._job, wave, self._keys(wave, names), names))
        on_boards = self.boards.begin(jobs)
        blocks = self.executor.blocks([job for job in jobs if job.number not in on_boards] if on_boards else jobs)
        flying = {flight.number: flight for flight in wave}
        for block in blocks:
            fair = _fair(block, flying)
            for number, done, seen in zip(block.numbers, block.done, block.seen, strict=True):
                flight = flying[number]
                if isinstance(flight, Swift):
                    flight.leg += 1
                    flight.done = done if done.carry is None else replace(done, carry=None)
                    flight.seen, flight.fair = seen, fair
                else:
                    _ended(flight, Result(done, seen))
        for flight in wave if on_boards else ():
            if flight.number in on_boards and not isinstance(flight, Swift):
                _ended(flight, self._from_board(flight, on_boards[flight.number].result(), now))

    def _from_board(self, flight: Flight, outcome: Outcome, now: float) -> Result:
        if outcome.note:
            self.log.events.append(Event(now, "board", self.roster.names[flight.client], outcome.note))
        if outcome.lost:
            flight.lost = outcome.lost
        done = outcome.done or Done(None)
        return Result(done, inspect(done.update))

    def _keys(self, wave: Sequence[Flight | Swift], names: Sequence[ClientId]) -> list[int]:
        """The key of each leg. What is known of each client's next task comes with it."""
        seed, legs = self.conditions.seed, {flight.leg for flight in wave}
        if legs == {0}:
            self.swifts.prepare(wave, names)
            found: list[int] = keys.numbers(seed, names, [flight.count for flight in wave], 0)[0].tolist()
            return found
        found = [0] * len(wave)
        for leg in legs:
            places = [i for i, flight in enumerate(wave) if flight.leg == leg]
            part, own = [wave[i] for i in places], [names[i] for i in places]
            drawn = keys.numbers(seed, own, [flight.count for flight in part], leg)[0].tolist()
            for i, key in zip(places, drawn, strict=True):
                found[i] = key
            if leg == 0:
                self.swifts.prepare(part, own)
        return found

    def _job(self, flight: Flight | Swift, key: int, name: ClientId) -> Job:
        client, mail = flight.client, self.mail
        if isinstance(flight, Swift):
            kind, apart = flight.kind, flight.apart
            note = None if mail.none else self._opened(name, mail.first(client, flight.sent))
            own = self.wants_own(client)
            row = flight.number, client, kind.samples, apart.value, key, kind.mine, None, note, None, None, own, apart
            return tuple.__new__(Job, row)  # one of them is made for every task
        begins = flight.starts[flight.leg]
        index, labels = self.conditions.view(client, begins)
        letter = mail.read(client, begins) if flight.leg else mail.first(client, flight.sent)
        return Job(
            number=flight.number,
            client=index,
            samples=int(self.roster.samples[index]),
            labels=labels,
            task=flight.task,
            key=key,
            mine=self.private(client),
            carry=flight.carry,
            mail=self._opened(name, letter),
            parcel=flight.parcel,
            own=self.wants_own(client),
            apart=flight.apart,
        )

    def _opened(self, name: ClientId, letter: Letter | None) -> Message:
        """The note in a letter, which is counted now: a note that a newer one replaced never left the server."""
        if letter is None:
            return None
        self.log.tasks.append(delivered(name, letter))
        return letter.post.note


def _ended(flight: Flight, result: Result) -> None:
    """Note what a leg returned."""
    flight.leg += 1
    flight.carry = result.done.carry
    if flight.complete and not flight.lost:
        done = result.done if result.done.carry is None else replace(result.done, carry=None)
        flight.done, flight.seen, flight.carry = done, result.seen, None


def _fair(block: Block, flying: Mapping[int, Flight | Swift]) -> bool:
    """Whether the `examples` of all updates of a block are believed; False also where that takes a closer look."""
    flights = [flying[number] for number in block.numbers]
    samples = [flight.kind.samples for flight in flights if isinstance(flight, Swift)]
    if block.whole is None or len(samples) < len(flights):
        return False
    return all_plausible(block.whole.first(), block.whole.field("examples"), samples)


def _due(flight: Flight | Swift, now: float) -> bool:
    if flight.leg >= flight.legs or flight.lost or flight.abandoned:
        return False
    return flight.leg == 0 or flight.starts[flight.leg] <= now


def legs_ahead(flights: Iterable[Flight | Swift]) -> dict[int, Sequence[float]]:
    """For each client at work: until when the mail of each leg that has not run must have come."""
    return {
        flight.client: [flight.starts[leg] if leg else flight.sent for leg in range(flight.leg, flight.legs)]
        for flight in flights
        if not flight.lost
    }
