"""The fleet in virtual time: an event queue over tasks whose durations are known before they are computed.

Work is done lazily. Tasks in flight pile up until the one at the head of the queue is needed; then everything that has
begun by then is trained as one stack. Nothing that has not arrived at `now` can be seen: a leg that has begun cannot be
reached by mail posted later, and a leg is computed only once its start has passed.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from potluck import keys
from potluck.devices import too_small
from potluck.engines.execute import Executor, Job, Result
from potluck.engines.gather import gather
from potluck.engines.local.boards import Boards, ExternalClient, Outcome
from potluck.engines.local.faults import SPOILING, Faults, spoil
from potluck.engines.local.flight import Flight, View, plan, recorded, relayed, unchanged
from potluck.engines.local.mail import Letter, Mail, delays, delivered, soonest
from potluck.engines.local.roster import Idle, Presence, Roster
from potluck.engines.local.store import Store
from potluck.engines.log import UNFIT, Event, Log, TaskRecord
from potluck.engines.price import Prices
from potluck.fleet import Arrival, ClientId, Data, Done, FleetEmpty, Local, Lost, Message
from potluck.wire.codec import size, walk
from potluck.wire.gate import inspect, refusal, repeated
from potluck.wire.noise import blurred


class LocalFleet:
    """Implements `potluck.fleet.Fleet`."""

    def __init__(
        self,
        roster: Roster,
        executor: Executor,
        home: Local,
        store: Store,
        prices: Prices,
        seed: int = 0,
        private: Any = None,
        faults: Faults | None = None,
        limit: int = 1 << 30,
        view: View = unchanged,
        noise: float = 0.0,
        floor: float = 0.0,
        boards: Mapping[int, ExternalClient] | None = None,
    ) -> None:
        self._roster = roster
        self._executor = executor
        self._home = home
        self._store = store
        self._prices = prices
        self._seed = seed
        self._private = private
        self._faults = faults or Faults()
        self._limit = limit
        self._view = view
        self._noise = noise
        self._floor = floor
        self._boards = Boards(boards or {})
        self._still = {"buffers", *(name for name, _ in home.model.module.named_buffers())} if noise else set()
        self._now = 0.0
        self._next = 0
        self._queue: list[tuple[float, int, int]] = []  # time, sequence, task number
        self._sequence = 0
        self._flights: dict[int, Flight] = {}
        self._repeats: dict[int, Flight] = {}  # answered, and a second copy is on its way
        self._busy: dict[int, int] = {}  # client -> task number
        self._counts: defaultdict[int, int] = defaultdict(int)
        self._unfit: dict[int, str] = {}  # client -> why it cannot hold the model
        self._mail = Mail(roster.names, delays(roster, seed), soonest(roster))
        self._parcels: dict[int, Any] = {}
        self._unasked: deque[Arrival | Lost] = deque()  # came while others were gathered
        self._presence = Presence(roster, seed, floor)
        self._idle = Idle(roster, self._presence)
        self._weighed: tuple[Any, int] | None = None
        self.log = Log()
        self.doing: Callable[[str], None] = lambda what: None  # told what the server is at, for whoever watches

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
        return self._idle.idle(self._now, self._busy, self._unfit)

    def send(self, task: Message, to: ClientId, legs: int = 1) -> None:
        client = self._roster.place(to)
        if client in self._busy:
            raise RuntimeError(f"{to} is still at work on task {self._busy[client]}: send to fleet.idle only")
        if legs < 1:
            raise ValueError(f"legs: {legs} given, a task has 1 or more")
        device, link = self._roster.device(client), self._roster.link(client)
        local = replace(self._home, mine=self._held(client), parcel=self._parcels.get(client))
        samples = self._rows(client, local.parcel, self._now)
        price = self._prices.of(task, local, samples)
        flight = plan(
            seed=self._seed,
            name=to,
            number=self._next,
            client=client,
            count=self._counts[client],
            task=task,
            legs=legs,
            now=self._now,
            samples=samples,
            device=device,
            link=link,
            price=price,
            bytes_down=self._weigh(task),
            faults=self._faults,
            leaves=self._presence.leaves(client),
            slow=(lambda moment: self._presence.slow(client, moment)) if self._floor else None,
            parcel=local.parcel,
            relay=self._roster.relay(client),
        )
        unfit = too_small(device, price.memory)
        if unfit is not None:  # told so, not simulated anyway
            flight.called_off(f"{UNFIT}{unfit}")
            self._unfit[client] = f"{UNFIT}{unfit}"
            self.log.events.append(Event(self._now, "does-not-fit", to, self._unfit[client]))
        elif not self._presence.here(client, self._now):
            flight.called_off("is not here")
        self._counts[client] += 1
        self._next += 1
        self._parcels.pop(client, None)  # the flight has it now
        self._flights[flight.number] = flight
        self._busy[client] = flight.number
        self._idle.began(client)
        self._push(flight.arrives, flight.number)

    def post(self, note: Message, to: Collection[ClientId]) -> None:
        self._mail.put(note, self._weigh(note), self._now, to)
        if self._mail.crowded:
            self._mail.tidy(self._now, self._legs_ahead())

    def receive(self, until: float | None = None) -> Arrival | Lost | None:
        return self._unasked.popleft() if self._unasked else self._next_answer(until, wakeful=True)

    def gather(self, tasks: Mapping[ClientId, Message], until: float | None = None) -> list[Arrival]:
        if not tasks:
            self._wait(until)
            return []
        arrivals, late = gather(
            tasks,
            self.send,
            lambda client: self._busy[self._roster.place(client)],
            lambda: self._next_answer(until, wakeful=False),
            self._unasked.append,
        )
        for number in late:
            self._flights[number].abandoned = True
        return arrivals

    def spend(self, seconds: float, what: str = "") -> None:
        if seconds < 0:
            raise ValueError(f"spend: {seconds} seconds, work takes no less than 0")
        if what:
            self.log.events.append(Event(self._now, "server", "", f"{what}: {seconds:.4g} s"))
            self.doing(what)
        self._now += seconds

    # -- what a run needs --------------------------------------------------------------------------------------------

    def mine(self, client: int) -> Any:
        """The private state of a client, as its last finished task left it; fetched where it is kept elsewhere."""
        fetched = self._boards.fetch(client)
        if fetched is not None:
            self._store.put(client, fetched)
        return self._held(client)

    def _held(self, client: int) -> Any:
        """The same as far as it is known here: enough to price a task, and all there is for who works here."""
        return self._store.get(client, self._private)

    @property
    def scratch(self) -> Path | None:
        """Where private state goes that outgrows memory."""
        return self._store.folder

    @scratch.setter
    def scratch(self, folder: Path | None) -> None:
        self._store.folder = folder

    @property
    def unfit(self) -> list[ClientId]:
        return [self._roster.names[i] for i in sorted(self._unfit)]

    @property
    def at_work(self) -> int:
        return len(self._busy)

    def snapshot(self) -> dict[str, Any]:
        """Everything needed to go on from here with the same bits, as a tree the codec can write."""
        for client in self._boards:
            self.mine(client)
        return {
            "now": self._now,
            "next": self._next,
            "sequence": self._sequence,
            "queue": [list(entry) for entry in self._queue],
            "flights": [dict(vars(flight)) for flight in self._flights.values()],
            "repeats": [dict(vars(flight)) for flight in self._repeats.values()],
            "busy": dict(self._busy),
            "counts": dict(self._counts),
            "unfit": dict(self._unfit),
            "mail": self._mail.snapshot(self._now, self._legs_ahead()),
            "parcels": dict(self._parcels),
            "unasked": [[isinstance(answer, Arrival), dict(vars(answer))] for answer in self._unasked],
            "mine": {client: self._store.get(client) for client in self._store},
            "stacks": [self._executor.stacks, self._executor.stacked],
            "boards": self._boards.snapshot(),
        }

    def restore(self, saved: dict[str, Any]) -> None:
        self._now, self._next, self._sequence = saved["now"], saved["next"], saved["sequence"]
        self._queue = [(entry[0], entry[1], entry[2]) for entry in saved["queue"]]
        self._flights = {flight["number"]: Flight(**flight) for flight in saved["flights"]}
        self._repeats = {flight["number"]: Flight(**flight) for flight in saved["repeats"]}
        self._busy = dict(saved["busy"])
        self._counts = defaultdict(int, saved["counts"])
        self._unfit = dict(saved["unfit"])
        self._mail.restore(saved["mail"])
        self._parcels = dict(saved["parcels"])
        self._unasked = deque((Arrival if came else Lost)(**answer) for came, answer in saved["unasked"])
        for client, value in saved["mine"].items():
            self._store.put(client, value)
        self._executor.stacks, self._executor.stacked = saved["stacks"]
        self._boards.restore(saved["boards"])
        self._idle.forget()

    def close(self) -> None:
        """Let go of the boards; the executor is closed by the run that made it."""
        self._boards.close()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _push(self, when: float, number: int) -> None:
        heapq.heappush(self._queue, (when, self._sequence, number))
        self._sequence += 1

    def _weigh(self, message: Message) -> int:
        if self._weighed is None or self._weighed[0] is not message:
            self._weighed = (message, size(message))
        return self._weighed[1]

    def _next_answer(self, until: float | None, wakeful: bool) -> Arrival | Lost | None:
        """What comes next; None at the moment `until` and, for the wakeful, when somebody new came before that."""
        while self._queue:
            when, _, number = self._queue[0]
            if wakeful:
                change = self._presence.next_coming(self._now, self._busy, self._unfit)
                if change is not None and change < (when if until is None else min(when, until)):
                    self._now = change
                    return None
            if until is not None and when > until:
                self._now = max(self._now, until)
                return None
            heapq.heappop(self._queue)
            self._now = max(self._now, when)
            answer = self._resolve(number)
            if answer is not None:
                return answer
        self._wait(until)
        return None

    def _wait(self, until: float | None) -> None:
        """Nothing is in flight: let time pass until somebody comes, or until the moment named."""
        change = self._presence.next_coming(self._now, self._unfit)
        if until is not None and (change is None or change > until):
            self._now = max(self._now, until)
        elif change is not None:
            self._now = change
        elif not self.idle:
            raise FleetEmpty(self._why_empty())

    def _why_empty(self) -> str:
        if self._unfit:
            place, reason = min(self._unfit.items())
            count, everybody = len(self._unfit), len(self._roster)
            return f"fleet: {count} of {everybody} clients cannot hold the model; {self._roster.names[place]}: {reason}"
        return f"fleet: none of the {len(self._roster)} clients will ever be reachable"

    def _resolve(self, number: int) -> Arrival | Lost | None:
        flight = self._flights.get(number)
        if flight is None:
            self._refuse_repeat(self._repeats.pop(number))
            return None
        name = self._roster.names[flight.client]
        if not flight.lost and not flight.abandoned:
            self._compute(flight)
        del self._flights[number]
        del self._busy[flight.client]
        if flight.client not in self._unfit:
            self._idle.ended(flight.client)
        if flight.lost:
            self._give_back(flight)
            self.log.tasks.append(self._record(flight, "lost", flight.lost))
            self.log.events.append(Event(self._now, "lost", name, flight.lost))
            return None if flight.abandoned else Lost(name, number, flight.arrives, flight.lost)
        if flight.abandoned:
            self._give_back(flight)
            self.log.tasks.append(self._record(flight, "late", "the round was over"))
            return None
        assert flight.done is not None
        update, seen = flight.done.update, flight.seen
        if self._noise:  # the same names and shapes; a sum of finite numbers
            key = keys.key(self._seed, name, flight.count, "noise")
            update = blurred(update, self._noise, key, self._still)
        if flight.fault in SPOILING or seen is None:
            update = spoil(update, flight.fault, self._limit)
            seen = inspect(update)
        samples = self._rows(flight.client, flight.parcel, flight.starts[-1])
        reason = refusal(update, seen, flight.expected, samples, self._limit)
        if reason is not None:
            self._give_back(flight)
            self.log.tasks.append(self._record(flight, "refused", reason.told))
            self.log.events.append(Event(self._now, "refused", name, f"task {number}: {reason.told}"))
            return Lost(name, number, flight.arrives, f"refused: {reason.told}")
        # Private state moves on only with an update that was taken: a refused task is as if it had not been done.
        if flight.done.mine is not None:
            self._store.put(flight.client, flight.done.mine)
        self._boards.took(flight.client, number)
        partner = self._roster.partner(flight.client)
        if flight.done.handoff is not None and partner is not None:
            # A copy, so that the stack it is a row of can be freed.
            self._parcels[partner] = walk(flight.done.handoff, lambda tensor: tensor.detach().clone())
        self.log.tasks.append(self._record(flight, "accepted"))
        self._log_relay(flight)
        if flight.fault == "duplicate":
            flight.task = flight.done = flight.carry = flight.parcel = None  # the copy is never opened
            self._repeats[number] = flight
            self._push(flight.arrives + (flight.arrives - flight.trained), number)
        return Arrival(name, update, number, flight.sent, flight.arrives)

    def _give_back(self, flight: Flight) -> None:
        """A task that came to nothing leaves its parcel where it was, unless a newer one has come."""
        if flight.parcel is not None:
            self._parcels.setdefault(flight.client, flight.parcel)

    def _rows(self, client: int, parcel: Any, at: float) -> int:
        """The samples a client has to work on: its own, or where it has none those its partner handed over."""
        own = int(self._roster.samples[self._view(client, at)[0]])
        return own if own or not isinstance(parcel, Data) else int(parcel.weight.sum())

    def _log_relay(self, flight: Flight) -> None:
        partner, relay = self._roster.partner(flight.client), self._roster.relay(flight.client)
        if partner is not None and relay is not None:
            self.log.tasks.append(relayed(flight, self._roster.names[partner], relay, self._now))

    def _refuse_repeat(self, flight: Flight) -> None:
        name = self._roster.names[flight.client]
        reason = repeated().told
        self.log.tasks.append(self._record(flight, "repeat", reason))
        self.log.events.append(Event(self._now, "refused", name, f"task {flight.number}: {reason}"))

    def _compute(self, needed: Flight) -> None:
        """Run legs in waves, everything that has begun together, until the needed flight is complete."""
        while not needed.complete:
            self._advance([flight for flight in self._flights.values() if self._due(flight)])

    def _advance(self, wave: Sequence[Flight]) -> None:
        """One leg of each. Boards work while the others are trained here."""
        jobs = [self._job(flight) for flight in wave]
        on_boards = self._boards.begin(jobs)
        results = self._executor.run([job for job in jobs if job.number not in on_boards])
        for flight in wave:
            flight.leg += 1
            if flight.number in on_boards:
                result = self._from_board(flight, on_boards[flight.number].result())
            else:
                result = results[flight.number]
            flight.carry = result.done.carry
            if flight.complete and not flight.lost:
                flight.done, flight.seen, flight.carry = replace(result.done, carry=None), result.seen, None

    def _from_board(self, flight: Flight, outcome: Outcome) -> Result:
        if outcome.told:
            self.log.events.append(Event(self._now, "board", self._roster.names[flight.client], outcome.told))
        if outcome.lost:
            flight.lost = outcome.lost
        done = outcome.done or Done(None)
        return Result(done, inspect(done.update))

    def _due(self, flight: Flight) -> bool:
        if flight.complete or flight.lost or flight.abandoned:
            return False
        # The first leg reads only mail from before it was sent, so nothing later can change it.
        return flight.leg == 0 or flight.starts[flight.leg] <= self._now

    def _job(self, flight: Flight) -> Job:
        name = self._roster.names[flight.client]
        begins = flight.starts[flight.leg]
        place, labels = self._view(flight.client, begins)
        mail, client = self._mail, flight.client
        letter = mail.read(client, begins) if flight.leg else mail.first(client, flight.sent)
        return Job(
            number=flight.number,
            client=place,
            samples=int(self._roster.samples[place]),
            labels=labels,
            task=flight.task,
            key=keys.number(self._seed, name, flight.count, flight.leg),
            mine=self._held(flight.client),
            carry=flight.carry,
            mail=self._opened(name, letter),
            parcel=flight.parcel,
        )

    def _legs_ahead(self) -> dict[int, list[float]]:
        """Until when the mail of each leg that has not been run must have come, for each client at work."""
        return {
            flight.client: [flight.starts[leg] if leg else flight.sent for leg in range(flight.leg, flight.legs)]
            for flight in self._flights.values()
            if not flight.lost
        }

    def _opened(self, name: ClientId, letter: Letter | None) -> Message:
        """The note in it. A letter goes out in time for the leg that reads it, and only then is it counted: one that a
        newer replaced before never left the server."""
        if letter is None:
            return None
        self.log.tasks.append(delivered(name, letter))
        return letter.post.note

    def _record(self, flight: Flight, outcome: str, reason: str = "") -> TaskRecord:
        return recorded(flight, self._roster.names[flight.client], outcome, reason)
