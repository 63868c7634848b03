"""The state of a simulated fleet that a checkpoint keeps: with it a run continues with the same bits."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any

from potluck.engines.execute import Executor
from potluck.engines.local.boards import Boards
from potluck.engines.local.conditions import Conditions
from potluck.engines.local.flight import Flight
from potluck.engines.local.idle import Idle
from potluck.engines.local.kept import Kept
from potluck.engines.local.legs import legs_ahead
from potluck.engines.local.mail import Mail, delays, soonest
from potluck.engines.local.pace import Pace
from potluck.engines.local.roster import Presence, Roster
from potluck.engines.local.swift import Swift, Swifts
from potluck.fleet import Arrival, Lost
from potluck.wire.bound import Bound


class Saved:
    """What changes during a run, and how it is saved and restored."""

    def __init__(
        self, roster: Roster, executor: Executor, kept: Kept, conditions: Conditions, boards: Boards, private: Any
    ) -> None:
        self._roster = roster
        self._executor = executor
        self.kept = kept  # what stays on the clients' side
        self._boards = boards
        self._conditions = conditions
        self._private = private
        self._now = 0.0
        self._next = 0
        self._queue: list[tuple[float, int, int]] = []  # time, sequence, task number
        self._sequence = 0
        self._flights: dict[int, Flight | Swift] = {}
        self._repeats: dict[int, Flight] = {}  # answered, and a second copy is on its way
        self._busy: dict[int, int] = {}  # client -> task number
        self._counts: defaultdict[int, int] = defaultdict(int)
        self._unfit: dict[int, str] = {}  # client -> why its device has too little memory
        self._mail = Mail(roster.names, delays(roster, conditions.draws), soonest(roster))
        self._parcels: dict[int, Any] = {}
        self._unasked: deque[Arrival | Lost] = deque()  # came while others were gathered
        self._presence = Presence(roster, conditions.draws, conditions.floor, conditions.hours)
        self._idle = Idle(roster, self._presence)
        self._pace = Pace(roster, conditions.pace)
        self._bound = Bound(conditions.bound)
        self._swifts = Swifts(roster, self._presence, conditions, len(boards))

    def mine(self, client: int) -> Any:
        """The private state that a client's last accepted task left; fetched from its board where it has one."""
        fetched = self._boards.fetch(client)
        if fetched is not None:
            self.kept.private.put(client, fetched)
        return self._held(client)

    def _held(self, client: int) -> Any:
        """The same as far as this process knows it. For pricing the task of a board that is enough."""
        return self.kept.private.get(client, self._private)

    def snapshot(self) -> dict[str, Any]:
        """Everything needed to continue from here with the same bits, as a tree that the codec can write."""
        for client in self._boards:
            self.mine(client)
        return {
            "now": self._now,
            "next": self._next,
            "sequence": self._sequence,
            "queue": [list(entry) for entry in self._queue],
            "flights": [flight.saved for flight in self._flights.values()],
            "repeats": [flight.saved for flight in self._repeats.values()],
            "busy": dict(self._busy),
            "counts": dict(self._counts),
            "unfit": dict(self._unfit),
            "mail": self._mail.snapshot(self._now, legs_ahead(self._flights.values())),
            "parcels": dict(self._parcels),
            "pace": self._pace.snapshot(),
            "bound": self._bound.snapshot(),
            "unasked": [[isinstance(answer, Arrival), dict(vars(answer))] for answer in self._unasked],
            "stacks": [self._executor.stacks, self._executor.stacked],
            "boards": self._boards.snapshot(),
            **self.kept.snapshot(),
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
        self.kept.restore(saved)
        self._executor.stacks, self._executor.stacked = saved["stacks"]
        self._boards.restore(saved["boards"])
        if "pace" in saved:
            self._pace.restore(saved["pace"])
        self._bound.restore(saved.get("bound", {}))
        self._idle.forget()
