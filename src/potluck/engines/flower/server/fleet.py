"""The fleet on real machines: `potluck.fleet.Fleet` over a transport whose answers take as long as they take.

A task is sent leg by leg, and mail goes with the next leg. `tasks.py` has the traffic of one task, `members.py` the
clients. This file joins both to what a method and a run need.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from potluck.devices import does_not_hold
from potluck.engines.flower.protocol import Envelope, Reply
from potluck.engines.flower.server.deadlines import Deadlines
from potluck.engines.flower.server.flight import Flight
from potluck.engines.flower.server.members import Member, Members
from potluck.engines.flower.server.tasks import Tasks
from potluck.engines.flower.server.words import Scored, reason, scores, secured
from potluck.engines.gather import gather
from potluck.engines.log import UNFIT, Event, Log
from potluck.engines.price import Prices, blank
from potluck.errors import BadInput
from potluck.fleet import Arrival, ClientId, FleetEmpty, Local, Lost, Message, Profile
from potluck.wire.bound import Bound

# (client, how many tasks it had before) -> why this one never ends, in a simulation; None: it goes well
Mishap = Callable[[ClientId, int], str | None]
T = TypeVar("T")


class FlowerFleet:
    """Implements `potluck.fleet.Fleet`."""

    def __init__(
        self,
        members: Members,
        home: Local,
        prices: Prices,
        classes: Mapping[str, type],
        run: str,
        private: Any = None,
        limit: int = 1 << 30,
        patience: float = 600.0,
        mishap: Mishap | None = None,
        deadlines: Deadlines | None = None,
        clip: float = 0.0,
    ) -> None:
        self._members = members
        self._home = home
        self._prices = prices
        self._private = private
        self._patience = patience  # seconds without any client after which the run ends
        self._mishap = mishap
        self._unfit: dict[ClientId, str] = {}  # clients whose device has too little memory, and why
        self._before = 0.0  # the run's time when this process took over
        self._began = members.clock()
        self._next = 0
        self._start = 0  # how often the server program was started
        self._unasked: deque[Arrival | Lost] = deque()  # came while others were gathered
        self.log = Log()
        self.progress = 0.0  # set by the driver
        self.scratch: Path | None = None
        self.doing: Callable[[str], None] = lambda what: None
        self._tasks = Tasks(members, classes, run, limit, lambda: self.now, self.log, Bound(clip), deadlines)

    # -- what a method sees ------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self._before + self._members.clock() - self._began

    @property
    def home(self) -> Local:
        return self._home

    @property
    def clients(self) -> Mapping[ClientId, Profile]:
        return self._members

    @property
    def idle(self) -> Sequence[ClientId]:
        busy = self._tasks.flights
        return [c for c in self._members if c not in busy and c not in self._unfit and self._members.here(c)]

    @property
    def resting(self) -> Collection[ClientId]:
        return ()  # real machines keep their own pace

    def send(self, task: Message, to: ClientId, legs: int = 1) -> None:
        if to in self._tasks.flights:
            number = self._tasks.flights[to].number
            raise RuntimeError(f"{to} still works on task {number}: send to fleet.idle only")
        if legs < 1:
            raise ValueError(f"legs: must be 1 or more, got {legs}")
        member = self._members.by_name[to]
        samples = member.sizes.train
        held = samples or self._partners_samples(member)
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
            passes=price.visits.of(samples or held) * legs / held if held else 0.0,
            like=price.left,
            mail=self._tasks.read_note(to),
            called_off=self._called_off(member, price.memory),
        )
        self._next += 1
        member.count += 1
        self._tasks.start(flight)

    def post(self, note: Message, to: Collection[ClientId]) -> None:
        for client in to:
            if client in self._members:
                self._tasks.notes[client] = (note, self.now)

    def receive(self, until: float | None = None) -> Arrival | Lost | None:
        return (
            self._unasked.popleft() if self._unasked else self._tasks.bound.one(self._next_answer(until, wakeful=True))
        )

    def gather(self, tasks: Mapping[ClientId, Message], until: float | None = None) -> Sequence[Arrival]:
        if not tasks:
            self._wait(until)
            return []
        arrivals, late = gather(
            tasks,
            self.send,
            lambda client: self._tasks.flights[client].number,
            lambda: self._next_answer(until, wakeful=False),
            lambda answer: self._unasked.append(self._tasks.bound.one(answer)),
            lambda came, of: self.doing(f"waiting: {came} of {of} clients have answered"),
        )
        for flight in self._tasks.flights.values():
            flight.abandoned |= flight.number in late
        return self._tasks.bound.all(arrivals)

    def spend(self, seconds: float, what: str = "") -> None:
        """Record server work. It has already taken its wall time, so nothing waits here."""
        if seconds < 0:
            raise ValueError(f"spend: seconds must be 0 or more, got {seconds}")
        if what:
            self.log.events.append(Event(self.now, "server", "", what))
            self.doing(what)

    # -- what a run needs --------------------------------------------------------------------------------------------

    @property
    def at_work(self) -> int:
        return len(self._tasks.flights)

    @property
    def spent(self) -> float:
        return 0.0

    @property
    def holders(self) -> int:
        return sum(member.sizes.train > 0 for member in self._members.by_name.values())

    @property
    def unfit(self) -> list[ClientId]:
        return sorted(self._unfit)

    def join_all(self, joining: Envelope, classes: tuple[str, ...]) -> None:
        """Let all clients that said hello join the run, and wait until each has joined, refused or left."""
        self._members.begin(joining, classes)
        self._poll_until(lambda: bool(self._members.online) and not self._members.undecided, self._patience)
        if not self.idle:
            reasons = [event.detail for event in self.log.events if event.kind == "refused"]
            raise FleetEmpty(f"fleet: no client could join the run ({reasons[0] if reasons else 'no answer'})")

    def evaluate(self, asks: Mapping[ClientId, Envelope], wait: float) -> dict[ClientId, Scored]:
        """Ask clients to evaluate their models. Clients without a valid answer in time are left out."""

        def read(client: ClientId, said: Envelope) -> Scored:
            return scores(said.head, client, self._members.by_name[client].sizes.test)

        return self._answers(asks, wait, read, "evaluation")

    def secure(self, asks: Mapping[ClientId, Envelope], wait: float) -> dict[ClientId, bytes]:
        """Ask clients for one step of a secure sum."""
        return self._answers(asks, wait, lambda client, said: secured(said, asks[client].head, client), "step of a sum")

    def _answers(
        self,
        asks: Mapping[ClientId, Envelope],
        wait: float,
        read: Callable[[ClientId, Envelope], T],
        what: str,
    ) -> dict[ClientId, T]:
        answers: dict[ClientId, T] = {}
        open_ = set()
        asked, deadlines = self.now, self._tasks.deadlines

        def on_reply(client: ClientId, reply: Reply) -> None:
            late = client not in open_
            open_.discard(client)
            if reply.envelope is not None:
                deadlines.note("evaluate", client, self.now - asked)
                self._members.heard(client)
            if late:
                return
            if reply.envelope is None:
                self._note("lost", client, f"no {what}: {reason(reply.error)}")
                return
            try:
                answers[client] = read(client, reply.envelope)
            except BadInput as error:
                self._note("refused", client, f"{what}: {error.told}")

        for client, ask in asks.items():
            member = self._members.by_name[client]
            if member.node is None or not member.joined:
                continue
            addressed = Envelope({**ask.head, **self._tasks.address(client)}, ask.body)
            if self._members.ask(member.node, addressed, partial(on_reply, client), ttl=wait):
                open_.add(client)
        self._poll_until(lambda: all(self.now - asked > deadlines.seconds("evaluate", one) for one in open_), wait)
        for client in sorted(open_):
            self._note("lost", client, f"no {what} within {min(wait, self.now - asked):.0f} seconds")
            if client not in self._tasks.flights:  # one that trains may answer when it is done
                self._members.silent(client)
        open_.clear()
        return answers

    def _note(self, kind: str, client: ClientId, detail: str) -> None:
        self.log.events.append(Event(self.now, kind, client, detail))

    def snapshot(self) -> dict[str, Any]:
        """Everything needed to continue from here, as a tree that the codec can write."""
        self._tasks.mark()
        return {
            "now": self.now,
            "next": self._next,
            "start": self._start,
            "members": [member.saved() for member in self._members.by_name.values()],
            "flights": [dict(vars(flight)) for flight in self._tasks.flights.values()],
            "notes": {client: list(note) for client, note in self._tasks.notes.items()},
            "unfit": dict(self._unfit),
            "bound": self._tasks.bound.snapshot(),
            "unasked": [[isinstance(answer, Arrival), dict(vars(answer))] for answer in self._unasked],
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Continue from a snapshot: clients keep their counts and states, tasks in flight are asked for again."""
        self._before, self._began = saved["now"], self._members.clock()
        self._next, self._start = saved["next"], saved["start"] + 1
        members = {one["name"]: Member.of(one) for one in saved["members"]}
        for name, member in self._members.by_name.items():
            there = members.setdefault(name, member)
            there.node, there.joined, there.profile = member.node, member.joined, member.profile
        self._members.by_name = members
        self._unfit = dict(saved.get("unfit", {}))
        self._tasks.resumed = self._before
        self._tasks.bound.restore(saved.get("bound", {}))
        self._tasks.restore(
            {one["client"]: Flight(**{**one, "out": False, "back": False}) for one in saved["flights"]},
            {client: (note[0], note[1]) for client, note in saved["notes"].items()},
        )
        self._unasked = deque((Arrival if came else Lost)(**answer) for came, answer in saved["unasked"])

    # -- inside ------------------------------------------------------------------------------------------------------

    def _as_seen(self, member: Member) -> Local:
        """What the server can know of a client's side: the shapes, not its private state or its parcel."""
        trains_on_parcels = member.profile.partner is not None and not member.sizes.train
        parcel = blank(self._home.data, 1) if trains_on_parcels else None
        mine = self._private if member.like is None else member.like
        return replace(self._home, mine=mine, parcel=parcel)

    def _called_off(self, member: Member, needed: int) -> str:
        """Why a task must not begin: the device is too small for it, as in the local engine, or a simulated loss."""
        client, profile = member.name, member.profile
        why = None if profile.memory is None else does_not_hold(profile.device, profile.memory, needed)
        if why is not None:
            self._unfit[client] = f"{UNFIT}{why}"
            self.log.events.append(Event(self.now, "does-not-fit", client, self._unfit[client]))
            return self._unfit[client]
        return "" if self._mishap is None else self._mishap(client, member.count) or ""

    def _partners_samples(self, member: Member) -> int:
        """The samples of an access point's device; not more of them than the server knows are handed over."""
        partner = self._members.by_name.get(member.profile.partner or "")
        return 0 if partner is None else partner.sizes.train

    def _poll_until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Exchange messages until `ready()`, or until the time is up."""
        began = self._members.clock()
        while not ready() and self._members.clock() - began < seconds:
            if not self._tasks.poll():
                self._members.rest()

    def _next_answer(self, until: float | None, wakeful: bool) -> Arrival | Lost | None:
        """The next answer; None at the moment `until` and, if `wakeful`, when a client becomes idle before that."""
        idle = set(self.idle) if wakeful else set()
        while True:
            came = self._tasks.poll()
            while self._tasks.answers:
                answer = self._tasks.answers.popleft()()
                if answer is not None:
                    return answer
            if until is not None and self.now >= until:
                return None
            if wakeful and set(self.idle) - idle:
                return None
            if not self._tasks.flights:
                self._wait(until)
                return None
            if not came:
                self._members.rest()

    def _wait(self, until: float | None) -> None:
        """Nothing is in flight: wait for the moment `until`, or without one for the first idle client."""
        began = self._members.clock()
        while (until is None and not self.idle) or (until is not None and self.now < until):
            if until is None and self._unfit and len(self._unfit) == len(self._members):
                client, reason = min(self._unfit.items())
                raise FleetEmpty(f"fleet: none of {len(self._members)} clients can hold the model; {client}: {reason}")
            if until is None and self._members.clock() - began > self._patience:
                raise FleetEmpty(f"fleet: no client was online for {self._patience:g} seconds")
            if not self._tasks.poll():
                self._members.rest()
