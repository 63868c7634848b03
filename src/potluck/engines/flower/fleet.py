"""The fleet on real machines: `potluck.fleet.Fleet` over a wire whose answers come when they come.

A task goes out leg by leg; mail rides along with the next leg. Every task has a ticket: asked again, after the server
program or the client was killed, it is answered once more and not done once more. What is not an honest answer to the
task that was asked is refused, counted and shown, and the run goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from potluck.engines.flower.crowd import Crowd, Member
from potluck.engines.flower.flights import Flight, Told, number_in, record
from potluck.engines.flower.words import Envelope, Reply
from potluck.engines.gather import gather
from potluck.engines.log import Event, Log, TaskRecord
from potluck.engines.price import Prices, blank
from potluck.errors import BadInput, Code
from potluck.fleet import Arrival, ClientId, FleetEmpty, Local, Lost, Message, Profile
from potluck.wire.codec import decode, encode
from potluck.wire.gate import look, refusal, too_large

COMES_BACK = 180.0  # seconds that a resumed run waits for a client with a task in flight


class FlowerFleet:
    """Implements `potluck.fleet.Fleet`."""

    def __init__(
        self,
        crowd: Crowd,
        home: Local,
        prices: Prices,
        classes: Mapping[str, type],
        run: str,
        private: Any = None,
        limit: int = 1 << 30,
        patience: float = 600.0,
    ) -> None:
        self._crowd = crowd
        self._home = home
        self._prices = prices
        self._classes = classes
        self._run = run
        self._private = private
        self._limit = limit
        self._patience = patience  # seconds without anybody after which the run ends
        self._before = 0.0  # seconds of the run when this process began
        self._began = crowd.clock()
        self._next = 0
        self._start = 0  # how often the server program was started
        self._flights: dict[ClientId, Flight] = {}
        self._box: dict[ClientId, tuple[Any, float]] = {}  # unread mail, and when it was posted
        self._back: deque[Callable[[], Arrival | Lost | None]] = deque()  # answers that are here, in order of arrival
        self._unasked: deque[Arrival | Lost] = deque()  # came while others were gathered
        self._marked: dict[ClientId, str] = {}  # taken, as the newest snapshot has it
        self._safe: dict[ClientId, str] = {}  # and the one before, which is surely written by now
        self._encoded: tuple[Any, Any, bytes] | None = None
        self.log = Log()
        self.scratch: Path | None = None
        self.doing: Callable[[str], None] = lambda what: None
        crowd.left = self._went

    # -- what a method sees ------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self._before + self._crowd.clock() - self._began

    @property
    def home(self) -> Local:
        return self._home

    @property
    def clients(self) -> Mapping[ClientId, Profile]:
        return self._crowd

    @property
    def idle(self) -> Sequence[ClientId]:
        return [name for name in self._crowd if name not in self._flights and self._crowd.here(name)]

    def send(self, task: Message, to: ClientId, legs: int = 1) -> None:
        if to in self._flights:
            raise RuntimeError(f"{to} is still at work on task {self._flights[to].number}: send to fleet.idle only")
        if legs < 1:
            raise ValueError(f"legs: {legs} given, a task has 1 or more")
        member = self._crowd.members[to]
        samples = member.sizes.train
        price = self._prices.of(task, self._as_seen(member), samples)
        flight = Flight(
            number=self._next,
            client=to,
            ticket=f"{self._start}.{self._next}",
            count=member.count,
            task=task,
            legs=legs,
            sent=self.now,
            expected=price.expected,
            macs=price.macs.of(samples) * legs,
            memory=price.memory,
            like=price.left,
            mail=self._read(to),
        )
        self._next += 1
        member.count += 1
        self._flights[to] = flight
        self._ask(flight)

    def post(self, note: Message, to: Collection[ClientId]) -> None:
        for client in to:
            if client in self._crowd:
                self._box[client] = (note, self.now)

    def receive(self, until: float | None = None) -> Arrival | Lost | None:
        return self._unasked.popleft() if self._unasked else self._next_answer(until, wakeful=True)

    def gather(self, tasks: Mapping[ClientId, Message], until: float | None = None) -> list[Arrival]:
        if not tasks:
            self._wait(until)
            return []
        arrivals, late = gather(
            tasks,
            self.send,
            lambda client: self._flights[client].number,
            lambda: self._next_answer(until, wakeful=False),
            self._unasked.append,
        )
        for flight in self._flights.values():
            flight.abandoned |= flight.number in late
        return arrivals

    def spend(self, seconds: float, what: str = "") -> None:
        """The work has been done by the clock on the wall; it is written down and not waited for again."""
        if seconds < 0:
            raise ValueError(f"spend: {seconds} seconds, work takes no less than 0")
        if what:
            self.log.events.append(Event(self.now, "server", "", what))
            self.doing(what)

    # -- what a run needs --------------------------------------------------------------------------------------------

    @property
    def at_work(self) -> int:
        return len(self._flights)

    @property
    def unfit(self) -> list[ClientId]:
        return []  # a machine that cannot hold the training says so when it is asked

    def join_all(self, joining: Envelope, classes: tuple[str, ...]) -> None:
        """Have everybody who said hello join the run, and wait for their answers."""
        self._crowd.begin(joining, classes)
        began = self._crowd.clock()
        while not self.idle and self._crowd.clock() - began < self._patience:
            if not self._turn():
                self._crowd.rest()
        if not self.idle:
            reasons = [event.detail for event in self._crowd.events if event.kind == "refused"]
            raise FleetEmpty(f"fleet: nobody could join the run ({reasons[0] if reasons else 'no answer'})")
        settled = self._crowd.clock() + 30.0
        while any(not self._crowd.here(name) for name in self._crowd) and self._crowd.clock() < settled:
            if not self._turn():
                self._crowd.rest()

    def look(self, asks: Mapping[ClientId, Envelope], wait: float) -> dict[ClientId, Envelope]:
        """Ask clients how good their models are; who does not answer in time is left out."""
        answers: dict[ClientId, Envelope] = {}
        open_ = set()
        for client, ask in asks.items():
            member = self._crowd.members[client]
            if member.node is None or not member.joined:
                continue

            def heard(reply: Reply, client: ClientId = client) -> None:
                open_.discard(client)
                if reply.envelope is None:
                    self.log.events.append(Event(self.now, "lost", client, f"no look: {reply.error}"))
                else:
                    answers[client] = reply.envelope

            addressed = Envelope({**ask.head, **self._address(client)}, ask.body)
            if self._crowd.ask(member.node, addressed, heard, ttl=wait):
                open_.add(client)
        until = self.now + wait
        while open_ and self.now < until:
            if not self._turn():
                self._crowd.rest()
        return answers

    def snapshot(self) -> dict[str, Any]:
        """Everything needed to go on from here, as a tree the codec can write."""
        self._safe, self._marked = self._marked, {m.name: m.taken for m in self._crowd.members.values()}
        return {
            "now": self.now,
            "next": self._next,
            "start": self._start,
            "members": [member.saved() for member in self._crowd.members.values()],
            "flights": [dict(vars(flight)) for flight in self._flights.values()],
            "box": {client: list(mail) for client, mail in self._box.items()},
            "unasked": [[isinstance(answer, Arrival), dict(vars(answer))] for answer in self._unasked],
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Go on from a snapshot: clients keep their counts and states, tasks in flight are asked for again."""
        self._before, self._began = saved["now"], self._crowd.clock()
        self._next, self._start = saved["next"], saved["start"] + 1
        present = self._crowd.members
        members = {one["name"]: Member.of(one) for one in saved["members"]}
        for name, member in present.items():
            there = members.setdefault(name, member)
            there.node, there.joined, there.profile = member.node, member.joined, member.profile
        self._crowd.members = members
        self._flights = {one["client"]: Flight(**{**one, "out": False, "back": False}) for one in saved["flights"]}
        self._box = {client: (mail[0], mail[1]) for client, mail in saved["box"].items()}
        self._unasked = deque((Arrival if came else Lost)(**answer) for came, answer in saved["unasked"])
        self._marked = self._safe = {member.name: member.taken for member in members.values()}

    # -- inside ------------------------------------------------------------------------------------------------------

    def _as_seen(self, member: Member) -> Local:
        """What the server can know of a client's side: its shapes, not what it keeps or was handed."""
        lives_on_parcels = member.profile.partner is not None and not member.sizes.train
        parcel = blank(self._home.data, 1) if lives_on_parcels else None
        mine = self._private if member.like is None else member.like
        return replace(self._home, mine=mine, parcel=parcel)

    def _read(self, client: ClientId) -> Any:
        note, posted = self._box.pop(client, (None, 0.0))
        if note is not None:
            now, nbytes = self.now, len(encode(note))
            kind = type(note).__name__
            record = TaskRecord(-1, client, kind, posted, now, now, now, nbytes, 0, 0, 0.0, 0, 0.0, "post")
            self.log.tasks.append(record)
        return note

    def _address(self, client: ClientId) -> dict[str, Any]:
        """Which client of which run, and what was taken of everybody in its household."""
        household = self._crowd.household(client)
        return {
            "run": self._run,
            "client": client,
            "taken": {member.name: member.taken for member in household},
            "safe": {member.name: self._safe.get(member.name, "") for member in household},
        }

    def _ask(self, flight: Flight) -> None:
        member = self._crowd.members[flight.client]
        if member.node is None or not member.joined:
            return
        body = self._body(flight.task, flight.mail)
        head = {
            "kind": "task",
            "ticket": flight.ticket,
            "leg": flight.leg,
            "legs": flight.legs,
            "count": flight.count,
            **self._address(flight.client),
        }
        heard = self._hearing(flight, flight.leg)
        flight.out = self._crowd.ask(member.node, Envelope(head, body), heard)
        if flight.out and flight.leg == 0:
            flight.bytes_down += len(body)

    def _body(self, task: Message, mail: Any) -> bytes:
        """A round's task is one object and is encoded once."""
        if self._encoded is None or self._encoded[0] is not task or self._encoded[1] is not mail:
            self._encoded = (task, mail, encode({"task": task, "mail": mail}))
        return self._encoded[2]

    def _hearing(self, flight: Flight, leg: int) -> Callable[[Reply], None]:
        def heard(reply: Reply) -> None:
            if self._flights.get(flight.client) is not flight or flight.leg != leg or flight.back:
                again = BadInput(Code.UPDATE_REPEATED, "answered before, or given up")
                self._note("repeat", flight, again.told)
                return
            self._hear(flight, reply)

        return heard

    def _hear(self, flight: Flight, reply: Reply) -> None:
        """The next leg, or what there is to hand to the method when its turn comes; until then nothing is taken."""
        if reply.envelope is None:
            self._comes(flight, lambda: self._lose(flight, reply.error))
            return
        head, body = reply.envelope.head, reply.envelope.body
        if "refused" in head:
            self._comes(flight, lambda: self._not_done(flight, str(head["refused"])))
            return
        asked = {"client": flight.client, "ticket": flight.ticket, "leg": flight.leg}
        told = {name: head.get(name) for name in asked}
        if told != asked:
            reason = BadInput(Code.UPDATE_REPEATED, f"it answers {told}, asked was {asked}")
            self._comes(flight, lambda: self._refuse(flight, len(body), reason.told))
            return
        if flight.leg + 1 < flight.legs:
            flight.leg, flight.mail, flight.out = flight.leg + 1, self._read(flight.client), False
            self._ask(flight)
            return
        self._comes(flight, lambda: self._finish(flight, head, body))

    def _comes(self, flight: Flight, hand: Callable[[], Arrival | Lost | None]) -> None:
        flight.back = True
        self._back.append(hand)

    def _finish(self, flight: Flight, head: Mapping[str, Any], body: bytes) -> Arrival | Lost | None:
        reason, update = self._checked(flight, body)
        if reason is not None:
            return self._refuse(flight, len(body), reason.told)
        return self._take(flight, update, head, len(body))

    def _checked(self, flight: Flight, body: bytes) -> tuple[BadInput | None, Any]:
        """The gate: why this update must not reach the method, or the update."""
        if len(body) > self._limit:
            return too_large(len(body), self._limit), None
        try:
            update = decode(body, self._classes)
            seen = look(update)
        except BadInput as error:
            return error, None
        except TypeError as error:
            return BadInput(Code.MESSAGE, str(error)), None
        profile = self._crowd[flight.client]
        known = self._crowd.members[flight.client].sizes.train
        if profile.partner is not None and not known:  # works on what its partner handed over
            known = self._crowd.members[profile.partner].sizes.train
        return refusal(update, seen, flight.expected, known, self._limit), update

    def _take(self, flight: Flight, update: Any, head: Mapping[str, Any], nbytes: int) -> Arrival | None:
        member = self._crowd.members[flight.client]
        member.failures = 0
        worked, handed = number_in(head.get("worked")), int(number_in(head.get("handed")))
        at = self._end(flight, "accepted", "", nbytes, worked, handed)
        if flight.abandoned:  # a late task is as if it had not been done
            return None
        member.taken, member.like = flight.ticket, flight.like
        return Arrival(flight.client, update, flight.number, flight.sent, at)

    def _refuse(self, flight: Flight, nbytes: int, reason: str) -> Lost | None:
        self.log.events.append(Event(self.now, "refused", flight.client, f"task {flight.number}: {reason}"))
        at = self._end(flight, "refused", reason, nbytes)
        return self._nothing(flight, at, f"refused: {reason}")

    def _not_done(self, flight: Flight, reason: str) -> Lost | None:
        """The client itself would not, or could not."""
        member = self._crowd.members[flight.client]
        if reason.startswith("journal:"):  # its folder is gone: it begins anew
            self.log.events.append(Event(self.now, "state-lost", flight.client, reason))
            member.taken, member.like = "", None
        if reason.startswith("run:") and member.node is not None:  # it does not know the run any more
            member.joined = False
            self._crowd.join(member.node)
        return self._lose(flight, reason)

    def _lose(self, flight: Flight, reason: str) -> Lost | None:
        self.log.events.append(Event(self.now, "lost", flight.client, f"task {flight.number}: {reason}"))
        at = self._end(flight, "lost", reason)
        return self._nothing(flight, at, reason)

    def _nothing(self, flight: Flight, at: float, reason: str) -> Lost | None:
        self._crowd.failed(flight.client)
        return None if flight.abandoned else Lost(flight.client, flight.number, at, reason)

    def _went(self, client: ClientId) -> None:
        flight = self._flights.get(client)
        if flight is not None and flight.out and not flight.back:
            self._comes(flight, lambda: self._lose(flight, "its node went away while it worked"))

    def _end(
        self, flight: Flight, outcome: str, reason: str, nbytes: int = 0, worked: float = 0.0, handed: int = 0
    ) -> float:
        del self._flights[flight.client]
        at = self.now
        if flight.abandoned and outcome == "accepted":
            outcome, reason = "late", "the round was over"
        told = Told(nbytes, worked, handed)
        self.log.tasks.append(record(flight, at, outcome, reason, told, self._crowd[flight.client].device))
        return at

    def _note(self, outcome: str, flight: Flight, reason: str) -> None:
        self.log.events.append(Event(self.now, "refused", flight.client, f"task {flight.number}: {reason}"))
        self.log.tasks.append(record(replace(flight, bytes_down=0), self.now, outcome, reason, Told()))

    def _turn(self) -> bool:
        """One look at the world; whether anything came."""
        came = self._crowd.pump()
        self.log.events += [Event(self.now, e.kind, e.client, e.detail) for e in self._crowd.events]
        self._crowd.events.clear()
        for flight in [one for one in self._flights.values() if not one.out and not one.back]:
            self._ask(flight)
            if not flight.out and self.now - max(self._before, flight.sent) > COMES_BACK:
                self._comes(flight, partial(self._lose, flight, "did not come back"))
        return came

    def _next_answer(self, until: float | None, wakeful: bool) -> Arrival | Lost | None:
        """What comes next; None at the moment `until` and, for the wakeful, when somebody new is there before that."""
        idle = set(self.idle)
        while True:
            came = self._turn()
            while self._back:
                answer = self._back.popleft()()
                if answer is not None:
                    return answer
            if until is not None and self.now >= until:
                return None
            if wakeful and set(self.idle) - idle:
                return None
            if not self._flights:
                self._wait(until)
                return None
            if not came:
                self._crowd.rest()

    def _wait(self, until: float | None) -> None:
        """Nothing is in flight: until the moment named, or until somebody is there, if anybody ever is."""
        began = self._crowd.clock()
        while (until is None and not self.idle) or (until is not None and self.now < until):
            if until is None and self._crowd.clock() - began > self._patience:
                raise FleetEmpty(f"fleet: nobody has been there for {self._patience:g} seconds")
            if not self._turn():
                self._crowd.rest()
