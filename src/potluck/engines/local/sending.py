"""Tasks on their way: how they are taken apart, priced and sent, and how those end that nothing has disturbed."""

from __future__ import annotations

import heapq
from typing import Any

from potluck.engines.local.answers import arrival_of
from potluck.engines.local.flight import Flight, recorded
from potluck.engines.local.legs import Legs
from potluck.engines.local.saved import Saved
from potluck.engines.local.swift import Swift
from potluck.engines.log import Event, Log, TaskRecord
from potluck.engines.price import Price, Prices
from potluck.fleet import Arrival, ClientId, Local, Lost, Message
from potluck.wire.apart import Apart, Patterns
from potluck.wire.gate import implausible, refusal


class Sending(Saved):
    """What the tasks of a round and single ones have in common."""

    _home: Local
    _legs: Legs
    _patterns: Patterns
    _taken: Apart | None  # the last message
    _found: tuple[float, frozenset[ClientId]]  # a moment, and clients that were idle then
    prices: Prices
    log: Log

    def _apart(self, message: Message) -> Apart:
        """A message taken apart. A round's task is one object, and is taken apart once."""
        if self._taken is None or self._taken.value is not message:
            self._taken = self._patterns(message)
        return self._taken

    def _price(self, task: Apart, mine: Any, samples: int, parcel: Any = None) -> Price:
        home = self._home  # `replace` would be slow: this runs for every task
        local = Local(home.model, home.data, mine, home.key, home.carry, home.mail, parcel, home.valid)
        return self.prices.of(task.value, local, samples, task)

    def _swift(self, task: Apart, client: int, name: ClientId, count: int) -> Swift | None:
        """A task that nothing disturbs, in flight; None where it is another (`swift.py`)."""
        mine, swifts, pattern = self._held(client), self._swifts, task.pattern
        assert pattern is not None
        way = swifts.known(pattern, mine, client, count)
        if way is None:
            samples = int(self._roster.samples[client])
            kind = swifts.kind(pattern, samples, mine)
            if kind is None:
                if mine is not self._private or not self.prices.alike(pattern.kind):
                    return None
                kind = swifts.learn(pattern, samples, mine, self._price(task, mine, samples))
            way = swifts.way(kind, client, name, count)
        if way is None or not (self._presence.always or self._here(client, name)):
            return None
        return Swift(self._next, client, name, count, task, way, self._now, swifts)

    def _here(self, client: int, name: ClientId) -> bool:
        """Whether a client is here; those that `idle` has just found are."""
        now, found = self._found
        return (now == self._now and name in found) or self._presence.here(client, self._now)

    def _fly(self, flight: Flight | Swift) -> None:
        """A task is on its way."""
        client, number = flight.client, flight.number
        self._counts[client] += 1
        self._next += 1
        self._flights[number] = flight
        self._busy[client] = number
        self._idle.began(client)
        heapq.heappush(self._queue, (flight.arrives, self._sequence, number))
        self._sequence += 1

    def _push(self, when: float, number: int) -> None:
        heapq.heappush(self._queue, (when, self._sequence, number))
        self._sequence += 1

    def _landed(self, swift: Swift) -> Arrival | Lost | None:
        """The same for a task that nothing has disturbed."""
        number, client = swift.number, swift.client
        if not swift.leg and not swift.abandoned:
            self._legs.complete(swift, self._flights, self._now)
        del self._flights[number]
        del self._busy[client]
        self._idle.ended(client)
        if swift.abandoned:
            self.log.tasks.append(self._record(swift.whole, "late", "the round was over"))
            return None
        done, seen, kind = swift.done, swift.seen, swift.kind
        assert done is not None
        assert seen is not None
        update, limit = done.update, self._conditions.limit
        if not kind.good(seen, limit) or not (swift.fair or implausible(update, kind.samples) is None):
            reason = refusal(update, seen, kind.price.expected, kind.samples, limit)
            assert reason is not None
            self._end(swift.whole, "refused", reason.told, "refused")
            return Lost(swift.name, number, swift.arrives, f"refused: {reason.told}")
        self._bound.expect(number, swift.task, seen.sizes, update)
        self.kept.take(client, done.mine, done.own)
        self.log.tasks.append(swift.record)
        return arrival_of(swift.name, update, number, swift.sent, swift.arrives)

    def _end(self, flight: Flight, outcome: str, reason: str, kind: str) -> None:
        """Record a task without effect, and an event of this kind."""
        name = self._roster.names[flight.client]
        detail = reason if kind == "lost" else f"task {flight.number}: {reason}"
        self.log.tasks.append(self._record(flight, outcome, reason))
        self.log.events.append(Event(self._now, kind, name, detail))

    def _record(self, flight: Flight, outcome: str, reason: str = "") -> TaskRecord:
        return recorded(flight, self._roster.names[flight.client], outcome, reason)
