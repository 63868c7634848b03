"""How fast a device may work: its duty cycle, the rows that have arrived, and the passes over them.

A device works for a share `duty` of the time: after w seconds of work it rests for w (1 / duty - 1) seconds. Labelled
rows arrive one by one, `rows_per_hour` of them in an hour, until a client has all its rows. Training may visit each row
that has arrived `passes` times. So at every moment, visits so far <= passes x rows that have arrived. Rows of a device
are also visited by its access point, and both count.

A client that must wait is resting and comes back by itself. It rests until its next task is covered, if that visits as
many rows as its last one. Where a task visits more, it waits on the device until it is covered. A client whose next
task can never be covered is done.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from potluck.engines.local.flight import Flight
from potluck.engines.local.roster import Roster
from potluck.fleet import ClientId

USED_UP = "has used up its passes"


@dataclass(frozen=True)
class Rules:
    """The settings `fleet.duty`, `fleet.rows_per_hour` and `fleet.passes`."""

    duty: float = 1.0
    rows_per_hour: float = 0.0  # 0: all rows are there from the start
    passes: float = 0.0  # 0: no limit

    @property
    def trivial(self) -> bool:
        """Whether no client ever rests or waits."""
        return self.duty == 1.0 and not self.passes

    def covered(self, visits: float, rows: int) -> float:
        """The first moment at which so many visits are allowed to a client with so many rows; infinity for never."""
        if not self.passes or not visits:
            return 0.0
        needed = math.ceil(visits / self.passes - 1e-9)
        if needed > rows:
            return math.inf
        return needed * 3600.0 / self.rows_per_hour if self.rows_per_hour else 0.0


@dataclass
class Pace:
    """Which clients rest, and until when. Clients are indices of the roster."""

    roster: Roster
    rules: Rules = Rules()
    visits: dict[int, float] = field(default_factory=dict)  # of the rows of this client, by it and its access point
    need: dict[int, float] = field(default_factory=dict)  # visits of a client's last task that trained
    until: dict[int, float] = field(default_factory=dict)  # client -> the moment at which its rest is over
    done: dict[int, str] = field(default_factory=dict)  # client -> why it never comes back
    _rests: list[tuple[float, int]] = field(default_factory=list)  # the same moments, the next one first

    def owner(self, client: int) -> int:
        """Whose rows a client trains on: its own, or those of its device."""
        partner = self.roster.partner(client)
        return client if partner is None or self.roster.samples[client] else partner

    def begins(self, client: int, visits: float) -> float:
        """The moment from which a task with so many visits is covered; infinity for never."""
        owner = self.owner(client)
        if not visits:
            return 0.0
        return self.rules.covered(self.visits.get(owner, 0.0) + visits, int(self.roster.samples[owner]))

    def began(self, client: int, visits: float) -> None:
        """Note the visits of a task that was sent."""
        if self.rules.passes and visits:
            owner = self.owner(client)
            self.visits[owner] = self.visits.get(owner, 0.0) + visits
            self.need[client] = visits

    def ended(self, flight: Flight, now: float) -> bool:
        """A task is over. Return whether its client is free; otherwise it rests, or it is done."""
        client = flight.client
        worked = max(0.0, flight.trained - flight.starts[0])
        ready = max(
            flight.trained + worked * (1.0 / self.rules.duty - 1.0),
            self.begins(client, self.need.get(client, 0.0)),
        )
        if client in self.done:
            return False
        if ready == math.inf:
            self.done[client] = USED_UP
        elif ready > now:
            self.until[client] = ready
            heapq.heappush(self._rests, (ready, client))
        return ready <= now

    def close_pair(self, client: int, parcels: Collection[int]) -> None:
        """An access point is done when its device is, and has handed nothing over that is left."""
        device, partner = self.owner(client), self.roster.partner(client)
        point = client if device != client else partner
        if point is not None and device in self.done and point not in parcels and not self.roster.samples[point]:
            self.done.setdefault(point, USED_UP)
            self.until.pop(point, None)
            self._rests = [rest for rest in self._rests if rest[1] != point]
            heapq.heapify(self._rests)

    def awake(self, now: float) -> list[int]:
        """The clients whose rest is over by now, each once."""
        found = []
        while self._rests and self._rests[0][0] <= now:
            _, client = heapq.heappop(self._rests)
            del self.until[client]
            found.append(client)
        return found

    def share(self, unfit: Collection[int]) -> float:
        """The share of all passes that is used, mean over the clients that can train; 0 without a limit."""
        if not self.rules.passes:
            return 0.0
        samples = self.roster.samples
        able = int(np.count_nonzero(samples)) - sum(bool(samples[client]) for client in unfit)
        used = sum(visits / float(samples[client]) for client, visits in self.visits.items())
        return used / self.rules.passes / max(1, able)

    @property
    def next(self) -> float | None:
        """When the next rest is over."""
        return self._rests[0][0] if self._rests else None

    def snapshot(self) -> dict[str, Any]:
        return {
            "visits": dict(self.visits),
            "need": dict(self.need),
            "until": dict(self.until),
            "done": dict(self.done),
        }

    def restore(self, saved: dict[str, Any]) -> None:
        self.visits, self.need = dict(saved["visits"]), dict(saved["need"])
        self.until, self.done = dict(saved["until"]), dict(saved["done"])
        self._rests = sorted((moment, client) for client, moment in self.until.items())


class Resting(Collection[ClientId]):
    """The names of the clients that rest, without a list of them."""

    def __init__(self, roster: Roster, resting: Collection[int]) -> None:
        self._roster = roster
        self._resting = resting

    def __len__(self) -> int:
        return len(self._resting)

    def __iter__(self) -> Iterator[ClientId]:
        names: Sequence[ClientId] = self._roster.names
        return (names[client] for client in sorted(self._resting))

    def __contains__(self, client: object) -> bool:
        return bool(self._resting) and self._roster.index_of(str(client)) in self._resting
