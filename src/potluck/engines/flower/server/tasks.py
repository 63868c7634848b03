"""The tasks in flight to client machines: sent leg by leg, checked when they come back, answered once.

Machines and connections fail at any moment, so every task has a ticket. A client that is asked for the same ticket
again answers again and does not work again. A reply is not handed to the method when it arrives: it waits in `answers`
until the method asks for the next one. Only then is it checked, accepted or refused. So the state of the run changes
at the moments that a checkpoint knows about, and a server that was killed repeats the same steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from potluck.engines.flower.protocol import Envelope, Reply
from potluck.engines.flower.server import words
from potluck.engines.flower.server.deadlines import Deadlines
from potluck.engines.flower.server.flight import Flight, Usage, record
from potluck.engines.flower.server.members import Members
from potluck.engines.log import Event, Log, TaskRecord
from potluck.errors import BadInput, Code
from potluck.fleet import Arrival, ClientId, Lost, Message
from potluck.wire.bound import Bound
from potluck.wire.codec import decode, encode, size
from potluck.wire.gate import cap_examples, inspect, refusal, too_large

COMES_BACK = 180.0  # seconds that a resumed run waits for a client with a task in flight
Answer = Arrival | Lost


class Tasks:
    """All tasks in flight, one per client at most, and the notes that wait for the next leg."""

    def __init__(
        self,
        members: Members,
        classes: Mapping[str, type],
        run: str,
        limit: int,
        now: Callable[[], float],
        log: Log,
        bound: Bound,
        deadlines: Deadlines | None = None,
    ) -> None:
        self._members = members
        self._classes = classes
        self._run = run
        self._limit = limit
        self._now = now
        self._log = log
        self.deadlines = deadlines or Deadlines()
        self.bound = bound
        bound.said = self._clipped
        self.resumed = 0.0  # the run's time when this process took over
        self.flights: dict[ClientId, Flight] = {}
        self.notes: dict[ClientId, tuple[Any, float]] = {}  # unread, and when each was posted
        # Answers that are here, in order of arrival. A call checks one and returns it, or None where it does not count.
        self.answers: deque[Callable[[], Answer | None]] = deque()
        self._marked: dict[ClientId, str] = {}  # last accepted tickets, as the newest snapshot has them
        self._safe: dict[ClientId, str] = {}  # as the snapshot before has them, which is surely on disk by now
        self._encoded: tuple[Any, Any, bytes] | None = None
        members.left = self._client_left

    def start(self, flight: Flight) -> None:
        self.flights[flight.client] = flight
        if flight.called_off:
            self._answered(flight, partial(self._lose, flight, flight.called_off))
        else:
            self._ask(flight)

    def poll(self) -> bool:
        """Ask the transport once. Return whether any reply came."""
        came = self._members.pump()
        self._log.events += [Event(self._now(), e.kind, e.client, e.detail) for e in self._members.events]
        self._members.events.clear()
        for flight in [one for one in self.flights.values() if one.out and not one.back]:
            limit = self.deadlines.seconds("task", flight.client)
            if self._now() - flight.asked > limit:
                self._members.silent(flight.client)
                self._answered(flight, partial(self._lose, flight, f"did not answer within {limit:g} seconds"))
        for flight in [one for one in self.flights.values() if not one.out and not one.back]:
            self._ask(flight)
            if not flight.out and self._now() - max(self.resumed, flight.sent) > COMES_BACK:
                self._answered(flight, partial(self._lose, flight, "did not come back"))
        return came

    def mark(self) -> None:
        """A snapshot is being taken: the one before is on disk, so clients may forget what is older than that."""
        self._safe, self._marked = self._marked, {m.name: m.taken for m in self._members.by_name.values()}

    def restore(self, flights: Mapping[ClientId, Flight], notes: Mapping[ClientId, tuple[Any, float]]) -> None:
        self.flights, self.notes = dict(flights), dict(notes)
        for flight in self.flights.values():
            if flight.called_off:
                self._answered(flight, partial(self._lose, flight, flight.called_off))
        self._marked = self._safe = {member.name: member.taken for member in self._members.by_name.values()}

    def read_note(self, client: ClientId) -> Any:
        """The unread note of a client, recorded as delivered; None if there is none."""
        note, posted = self.notes.pop(client, (None, 0.0))
        if note is not None:
            now, nbytes = self._now(), len(encode(note))
            kind = type(note).__name__
            self._log.tasks.append(
                TaskRecord(-1, client, kind, posted, now, now, now, nbytes, 0, 0, 0.0, 0, 0.0, "post")
            )
        return note

    def address(self, client: ClientId) -> dict[str, Any]:
        """The run, the client, and the last accepted ticket of each client on the same machine."""
        neighbours = self._members.on_same_machine(client)
        return {
            "run": self._run,
            "client": client,
            "taken": {member.name: member.taken for member in neighbours},
            "safe": {member.name: self._safe.get(member.name, "") for member in neighbours},
        }

    # -- sending -----------------------------------------------------------------------------------------------------

    def _ask(self, flight: Flight) -> None:
        """Send the present leg, if the client is online; otherwise `poll` tries again."""
        member = self._members.by_name[flight.client]
        if member.node is None or not member.joined:
            return
        body = self._body(flight.task, flight.mail)
        head = {
            "kind": "task",
            "ticket": flight.ticket,
            "leg": flight.leg,
            "legs": flight.legs,
            "count": flight.count,
            **self.address(flight.client),
        }
        flight.asked = self._now()
        then = partial(self._reply, flight, flight.leg, flight.asked)
        flight.out = self._members.ask(member.node, Envelope(head, body), then)
        if flight.out and flight.leg == 0:  # a note that goes along has a row of its own (`read_note`)
            flight.bytes_down += len(body) if flight.mail is None else size({"task": flight.task, "mail": None})

    def _body(self, task: Message, mail: Any) -> bytes:
        """A round's task is one object, and is encoded once."""
        if self._encoded is None or self._encoded[0] is not task or self._encoded[1] is not mail:
            self._encoded = (task, mail, encode({"task": task, "mail": mail}))
        return self._encoded[2]

    # -- replies -----------------------------------------------------------------------------------------------------

    def _reply(self, flight: Flight, leg: int, asked_at: float, reply: Reply) -> None:
        if reply.envelope is not None:
            self.deadlines.note("task", flight.client, self._now() - asked_at)
            self._members.heard(flight.client)
        if self.flights.get(flight.client) is not flight or flight.leg != leg or flight.back:
            reason = BadInput(Code.UPDATE_REPEATED, "answered before, or given up").told
            self._log.events.append(Event(self._now(), "refused", flight.client, f"task {flight.number}: {reason}"))
            again = replace(flight, bytes_down=0)
            self._log.tasks.append(record(again, self._now(), "repeat", reason, Usage()))
            return
        if reply.envelope is None:
            self._answered(flight, partial(self._lose, flight, words.reason(reply.error)))
            return
        head, body = reply.envelope.head, reply.envelope.body
        if "refused" in head:
            self._answered(flight, partial(self._not_done, flight, words.reason(head["refused"])))
            return
        try:
            answer = words.read(words.Answer, head)
        except BadInput as error:
            self._answered(flight, partial(self._refuse, flight, len(body), error.told))
            return
        asked = (flight.client, flight.ticket, flight.leg)
        got = (answer.client, answer.ticket, answer.leg)
        if got != asked:
            wrong = BadInput(Code.UPDATE_REPEATED, f"the answer must be to {_named(asked)}, got {_named(got)}")
            self._answered(flight, partial(self._refuse, flight, len(body), wrong.told))
        elif flight.leg + 1 < flight.legs:
            flight.leg, flight.mail, flight.out = flight.leg + 1, self.read_note(flight.client), False
            self._ask(flight)
        else:
            self._answered(flight, partial(self._finish, flight, answer, body))

    def _answered(self, flight: Flight, take: Callable[[], Answer | None]) -> None:
        flight.back = True
        self.answers.append(take)

    def _client_left(self, client: ClientId) -> None:
        flight = self.flights.get(client)
        if flight is not None and flight.out and not flight.back:
            self._answered(flight, partial(self._lose, flight, "its node went away while it worked"))

    # -- how a task ends ---------------------------------------------------------------------------------------------

    def _finish(self, flight: Flight, answer: words.Answer, body: bytes) -> Answer | None:
        try:
            reason, update = self._check(flight, body)
        except Exception as error:  # whatever an update does to a library, it must not end the run
            reason, update = BadInput(Code.MESSAGE, f"it cannot be checked ({type(error).__name__})"), None
        if reason is not None:
            return self._refuse(flight, len(body), words.reason(reason.told))
        member = self._members.by_name[flight.client]
        member.failures = 0
        at = self._end(flight, "accepted", "", Usage(len(body), answer.worked, answer.handed))
        if flight.abandoned:  # a late task is as if it had not been done
            return None
        member.taken, member.like = flight.ticket, flight.like
        self.bound.expect(flight.number, flight.task, None, update)
        return Arrival(flight.client, update, flight.number, flight.sent, at)

    def _check(self, flight: Flight, body: bytes) -> tuple[BadInput | None, Any]:
        """Why this update must not reach the method, or the update."""
        if len(body) > self._limit:
            return too_large(len(body), self._limit), None
        try:
            update = decode(body, self._classes)
            seen = inspect(update)
        except BadInput as error:
            return error, None
        holder = self._holder(flight.client)
        reason = refusal(update, seen, flight.expected, self._members.by_name[holder].sizes.train, self._limit)
        if reason is not None:
            return reason, None
        most = self._members.counts(holder)
        capped = cap_examples(update, most)
        if capped is not update:
            detail = f"task {flight.number}: counts for {most} examples, 10 times the median client's"
            self._log.events.append(Event(self._now(), "capped", flight.client, detail))
        return None, capped

    def _clipped(self, arrival: Arrival, what: str) -> None:
        event = Event(self._now(), "clipped", arrival.client, f"task {arrival.task}: {what}")
        self._log.events.append(event)

    def _holder(self, client: ClientId) -> ClientId:
        """Who has the samples that a client trains on: itself, or the partner that handed them over."""
        member = self._members.by_name[client]
        partner = member.profile.partner
        return client if partner is None or member.sizes.train or partner not in self._members else partner

    def _refuse(self, flight: Flight, nbytes: int, reason: str) -> Lost | None:
        self._log.events.append(Event(self._now(), "refused", flight.client, f"task {flight.number}: {reason}"))
        at = self._end(flight, "refused", reason, Usage(nbytes))
        return self._without_update(flight, at, f"refused: {reason}")

    def _not_done(self, flight: Flight, reason: str) -> Lost | None:
        """The client answered that it did not do the task."""
        member = self._members.by_name[flight.client]
        if reason.startswith("journal:"):  # its folder is gone: it starts again without private state
            self._log.events.append(Event(self._now(), "state-lost", flight.client, reason))
            member.taken, member.like = "", None
        if reason.startswith("run:") and member.node is not None:  # it does not know the run any more
            member.joined = False
            self._members.join(member.node)
        return self._lose(flight, reason)

    def _lose(self, flight: Flight, reason: str) -> Lost | None:
        self._log.events.append(Event(self._now(), "lost", flight.client, f"task {flight.number}: {reason}"))
        return self._without_update(flight, self._end(flight, "lost", reason, Usage()), reason)

    def _without_update(self, flight: Flight, at: float, reason: str) -> Lost | None:
        self._members.failed(flight.client)
        return None if flight.abandoned else Lost(flight.client, flight.number, at, reason)

    def _end(self, flight: Flight, outcome: str, reason: str, usage: Usage) -> float:
        del self.flights[flight.client]
        at = self._now()
        if flight.abandoned and outcome == "accepted":
            outcome, reason = "late", "the round was over"
        self._log.tasks.append(record(flight, at, outcome, reason, usage, self._members[flight.client].device))
        return at


def _named(asked: tuple[str, str, int]) -> str:
    client, ticket, leg = asked
    return f"client {client}, ticket {ticket}, leg {leg}"
