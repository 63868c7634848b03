"""The fleet in virtual time: an event queue over tasks whose durations are known before they are computed.

`send` prices a task, plans its flight and puts the moment of its arrival in the queue. `receive` takes the next moment
from the queue, moves the clock there, and only then has the task computed (`legs.py`), checked and handed out. A method
cannot see anything that has not arrived at `now`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from potluck import keys
from potluck.devices import too_small
from potluck.engines.execute import Executor
from potluck.engines.gather import gather
from potluck.engines.local.answers import Answers
from potluck.engines.local.boards import Boards, ExternalClient
from potluck.engines.local.conditions import Conditions, Holdings, arrived
from potluck.engines.local.flight import Flight, Order, plan, relayed
from potluck.engines.local.kept import Kept
from potluck.engines.local.legs import Legs, legs_ahead
from potluck.engines.local.pace import USED_UP, Resting
from potluck.engines.local.roster import Roster
from potluck.engines.local.rounds import Rounds, Sent
from potluck.engines.local.sending import Sending
from potluck.engines.local.swift import Swift
from potluck.engines.log import UNFIT, Event, Log
from potluck.engines.price import Prices
from potluck.fleet import Arrival, ClientId, FleetEmpty, Local, Lost, Message
from potluck.wire.apart import Patterns
from potluck.wire.codec import walk
from potluck.wire.gate import repeated


class LocalFleet(Sending):
    """Implements `potluck.fleet.Fleet`."""

    def __init__(
        self,
        roster: Roster,
        executor: Executor,
        home: Local,
        kept: Kept,
        prices: Prices,
        private: Any = None,
        conditions: Conditions | None = None,
        boards: Mapping[int, ExternalClient] | None = None,
    ) -> None:
        conditions = conditions or Conditions()
        super().__init__(roster, executor, kept, conditions, Boards(boards or {}), private)
        self._holdings = Holdings(roster, conditions.view)
        self._home = home
        self.prices = prices
        self._faults = conditions.faults
        self._taken = None
        self._patterns = Patterns()
        self._found = 0.0, frozenset()
        self._unchanging = self._presence.always and conditions.pace.trivial  # nobody comes, goes or rests
        self.log = Log()
        self._bound.said = self._clipped
        self.progress = 0.0  # set by the driver
        self.doing: Callable[[str], None] = lambda what: None  # called with what the server works on
        executor.bounds = conditions.bound > 0
        executor.heard = lambda what: self.doing(what)
        self._legs = Legs(
            roster, executor, self._boards, self._mail, self._held, conditions, self.log, self._swifts, kept.wants_own
        )
        self._rounds = Rounds(
            roster, self._presence, executor, conditions, kept, private, self._held, self._price, self._bound, self.log,
            self._on, self._end,
        )  # fmt: skip

    # -- what a method sees ------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self._now

    @property
    def home(self) -> Local:
        return self._home

    @property
    def clients(self) -> Roster:
        return self._roster

    @property
    def idle(self) -> Sequence[ClientId]:
        if not self._unchanging:
            self._wake()
        others, most = (self._busy, self._unfit, self._pace.until, self._pace.done), self._conditions.at_once
        if not most:
            return self._idle.idle(self._now, *others)
        if self._full:
            return []
        key = keys.number(self._conditions.seed, self._next, "idle")
        found = self._idle.some(most - len(self._busy), self._now, key, *others)
        self._found = self._now, frozenset(found)
        return found

    @property
    def resting(self) -> Collection[ClientId]:
        self._wake()
        return Resting(self._roster, self._pace.until)

    def send(self, task: Message, to: ClientId, legs: int = 1) -> None:
        client = self._roster.index_of(to)
        if client in self._busy:
            raise RuntimeError(f"{to} still works on task {self._busy[client]}: send to fleet.idle only")
        if legs < 1:
            raise ValueError(f"legs: must be 1 or more, got {legs}")
        parcel, taken, count = self._parcels.get(client), self._apart(task), self._counts[client]
        if legs == 1 and taken.pattern is not None and parcel is None and self._swifts.able:
            swift = self._swift(taken, client, to, count)
            if swift is not None:
                self._fly(swift)
                return
        samples = self._holdings.trained_on(client, parcel, self._now)
        price = self._price(taken, self._held(client), samples, parcel)
        rows, visits = self._holdings.rows(client, self._now), price.at(samples).visits * legs
        covered = self._pace.begins(client, visits)
        order = Order(self._next, client, to, count, taken, legs, self._now, samples, parcel, rows, covered)
        drawn = self._swifts.drawn(client, to, count)
        flight = plan(order, self._presence.situation(client), price, self._conditions.draws, self._faults, drawn)
        unfit = too_small(self._roster.device(client), price.memory)
        if unfit is not None:
            flight.call_off(f"{UNFIT}{unfit}")
            self._unfit[client] = f"{UNFIT}{unfit}"
            self.log.events.append(Event(self._now, "does-not-fit", to, self._unfit[client]))
        elif not self._presence.here(client, self._now):
            flight.call_off("is not here")
        elif covered == math.inf:
            flight.call_off(USED_UP)
            self._pace.done[client] = f"{USED_UP}: its task needs {visits / rows:.3g} more"
        self._pace.began(client, flight.visits)
        self._parcels.pop(client, None)  # the flight has it now
        self._fly(flight)

    def post(self, note: Message, to: Collection[ClientId]) -> None:
        self._mail.put(note, self._apart(note).nbytes, self._now, to)
        if self._mail.crowded:
            self._mail.tidy(self._now, legs_ahead(self._flights.values()))

    def receive(self, until: float | None = None) -> Arrival | Lost | None:
        if self._unasked:
            return self._unasked.popleft()
        answer = self._next_answer(until, wakeful=not self._unchanging and not self._full)
        return self._bound.one(answer) if self._bound.times else answer

    def gather(self, tasks: Mapping[ClientId, Message], until: float | None = None) -> Sequence[Arrival]:
        if not tasks:
            self._wait(until)
            return []
        sent = self._sent(tasks) if until is None else None
        if sent is not None:
            answers = self._rounds.answers(sent, self._now)
            return answers if isinstance(answers, Answers) else self._bound.all(answers)
        arrivals, late = gather(
            tasks,
            self.send,
            lambda client: self._busy[self._roster.index_of(client)],
            lambda: self._next_answer(until, wakeful=False),
            lambda answer: self._unasked.append(self._bound.one(answer)),
        )
        for number in late:
            self._flights[number].abandoned = True
        return self._bound.all(arrivals)

    def spend(self, seconds: float, what: str = "") -> None:
        if seconds < 0:
            raise ValueError(f"spend: seconds must be 0 or more, got {seconds}")
        if what:
            self.log.events.append(Event(self._now, "server", "", f"{what}: {seconds:.4g} s"))
            self.doing(what)
        self._now += seconds

    # -- what a run needs --------------------------------------------------------------------------------------------

    @property
    def scratch(self) -> Path | None:
        """The folder for private state that does not fit in memory."""
        return self.kept.folder

    @scratch.setter
    def scratch(self, folder: Path | None) -> None:
        self.kept.folder = folder

    @property
    def unfit(self) -> list[ClientId]:
        return [self._roster.names[i] for i in sorted(self._unfit)]

    @property
    def at_work(self) -> int:
        return len(self._busy)

    @property
    def spent(self) -> float:
        return self._pace.share(self._unfit)

    @property
    def holders(self) -> int:
        return self._holdings.holders

    def close(self) -> None:
        """Disconnect the boards. The run that made the executor closes it."""
        self._boards.close()

    @property
    def _full(self) -> bool:
        """Whether as many clients are at work as may be."""
        return 0 < self._conditions.at_once <= len(self._busy)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _clipped(self, arrival: Arrival, what: str) -> None:
        self.log.events.append(Event(self._now, "clipped", arrival.client, f"task {arrival.task}: {what}"))

    def _on(self, moment: float) -> None:
        self._now = max(self._now, moment)

    def _sent(self, tasks: Mapping[ClientId, Message]) -> Sent | None:
        """The tasks of a round that can be done at once (`rounds.py`); None where they must go one by one."""
        busy = self._queue or self._parcels or len(self._boards) or not self._mail.none
        sent = (
            None
            if busy or not self._rounds.calm(len(tasks))
            else self._rounds.orders(tasks, self._apart, self._next, self._counts)
        )
        if sent is not None:
            self._next += len(sent)
            self._sequence += len(sent)
            self._counts.update(zip(sent.clients, [before + 1 for before in sent.earlier], strict=True))
        return sent

    def _next_answer(self, until: float | None, wakeful: bool) -> Arrival | Lost | None:
        """The next answer; None at the moment `until` and, if `wakeful`, when a client comes online before that."""
        while self._queue:
            when, _, number = self._queue[0]
            if wakeful:
                change = self._next_coming(self._busy)
                if change is not None and change < (when if until is None else min(when, until)):
                    self._now = change
                    return None
            if until is not None and when > until:
                self._now = max(self._now, until)
                return None
            heapq.heappop(self._queue)
            if when > self._now:
                self._now = when
            answer = self._resolve(number)
            if answer is not None:
                return answer
        self._wait(until)
        return None

    def _wait(self, until: float | None) -> None:
        """Nothing is in flight: move the clock to the next client that comes online, or to `until`."""
        change = self._next_coming({})
        if until is not None and (change is None or change > until):
            self._now = max(self._now, until)
        elif change is not None:
            self._now = change
        elif not self.idle:
            raise FleetEmpty(self._why_empty())

    def _next_coming(self, busy: Mapping[int, int]) -> float | None:
        """The next moment at which a client comes online or has rested."""
        self._wake()
        there = self._presence.next_coming(self._now, busy, self._unfit, self._pace.done)
        return min((moment for moment in (there, self._pace.next) if moment is not None), default=None)

    def _wake(self) -> None:
        for client in self._pace.awake(self._now):
            self._idle.ended(client)

    def _why_empty(self) -> str:
        if self._pace.done:
            client, why = min(self._pace.done.items())
            limit = f"fleet.passes = {self._conditions.pace.passes:g}"
            count = f"{len(self._pace.done)} of {len(self._roster)} clients have used up their passes ({limit})"
            detail = "" if why == USED_UP else f"; {self._roster.names[client]} {why}"
            return f"fleet: {count}, and no other can train{detail}"
        if self._unfit:
            client, reason = min(self._unfit.items())
            counts = f"{len(self._unfit)} of {len(self._roster)} clients"
            return f"fleet: {counts} cannot hold the model; {self._roster.names[client]}: {reason}"
        return f"fleet: none of the {len(self._roster)} clients will ever be reachable"

    # -- what becomes of a task --------------------------------------------------------------------------------------

    def _resolve(self, number: int) -> Arrival | Lost | None:
        """End the task whose moment has come. None where the method does not wait for it."""
        flight = self._flights.get(number)
        if isinstance(flight, Swift):
            return self._landed(flight)
        if flight is None:
            self._end(self._repeats.pop(number), "repeat", repeated().told, "refused")
            return None
        if not flight.lost and not flight.abandoned:
            self._legs.complete(flight, self._flights, self._now)
        del self._flights[number]
        del self._busy[flight.client]
        if self._pace.ended(flight, self._now) and flight.client not in self._unfit:
            self._idle.ended(flight.client)
        self._pace.close_pair(flight.client, self._parcels)
        name = self._roster.names[flight.client]
        if flight.lost:
            self._give_back(flight)
            self._end(flight, "lost", flight.lost, "lost")
            return None if flight.abandoned else Lost(name, number, flight.arrives, flight.lost)
        if flight.abandoned:
            self._give_back(flight)
            self.log.tasks.append(self._record(flight, "late", "the round was over"))
            return None
        samples = self._holdings.trained_on(flight.client, flight.parcel, flight.starts[-1])
        update, seen, reason = arrived(flight, name, samples, self._conditions, self._home.model)
        if reason is not None:
            self._give_back(flight)
            self._end(flight, "refused", reason.told, "refused")
            return Lost(name, number, flight.arrives, f"refused: {reason.told}")
        self._bound.expect(number, flight.task, seen.sizes, update)
        self._accept(flight)
        return Arrival(name, update, number, flight.sent, flight.arrives)

    def _accept(self, flight: Flight) -> None:
        """Private state and hand-off move on only with an accepted update: a refused task has no effect."""
        assert flight.done is not None
        self.kept.accept(flight.client, flight.done)
        self._boards.took(flight.client, flight.number)
        partner, relay = self._roster.partner(flight.client), self._roster.relay(flight.client)
        if flight.done.handoff is not None and partner is not None:
            # A copy, so that the stack it is a row of can be freed.
            self._parcels[partner] = walk(flight.done.handoff, lambda tensor: tensor.detach().clone())
        self.log.tasks.append(self._record(flight, "accepted"))
        if partner is not None and relay is not None:
            self.log.tasks.append(relayed(flight, self._roster.names[partner], relay, self._now))
        if flight.fault == "duplicate":
            flight.task = flight.apart = flight.done = flight.carry = flight.parcel = None  # the copy is never opened
            self._repeats[flight.number] = flight
            self._push(flight.arrives + (flight.arrives - flight.trained), flight.number)

    def _give_back(self, flight: Flight) -> None:
        """A task without effect leaves its parcel where it was, unless a newer one has come."""
        if flight.parcel is not None:
            self._parcels.setdefault(flight.client, flight.parcel)
