"""Who is here at a moment: joins and leaves of the roster, and links that come and go."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from potluck import keys
from potluck.devices import Availability
from potluck.devices.floor import Floor
from potluck.engines.local.roster import Roster


class Presence:
    """A pure function of the moment: nothing to remember, nothing to save."""

    def __init__(self, roster: Roster, seed: int, floor: float = 0.0) -> None:
        self._roster = roster
        self._seed = seed
        self._floor = floor  # bit/s; who is slower at the moment is cut off
        self._groups: list[tuple[Availability | Floor, NDArray[Any], NDArray[Any]]] = []
        for code, (_, link) in enumerate(roster.equipment):
            places = np.flatnonzero(roster.codes == code)
            if link.availability is not None:
                numbers = np.array([self._number(int(i)) for i in places], dtype=np.int64)
                self._groups.append((link.availability, places, numbers))
            if floor > 0:
                numbers = np.array([self._place_in_trace(int(i)) for i in places], dtype=np.int64)
                self._groups.append((Floor(link, floor), places, numbers))

    def _number(self, client: int) -> int:
        return keys.number(self._seed, self._roster.names[client], "presence")

    def _place_in_trace(self, client: int) -> int:
        return keys.number(self._seed, self._roster.names[client])  # as `flight.plan` has it

    def leaves(self, client: int) -> float:
        """When it goes for good."""
        return float("inf") if self._roster.leaves is None else float(self._roster.leaves[client])

    def here(self, client: int, now: float) -> bool:
        joins, availability = self._roster.joins, self._roster.link(client).availability
        if (joins is not None and joins[client] > now) or self.leaves(client) <= now:
            return False
        if availability is not None and not availability.available(self._number(client), now):
            return False
        return not self.slow(client, now)

    def slow(self, client: int, now: float) -> bool:
        """Whether the link is below the floor at this moment."""
        link = self._roster.link(client)
        return self._floor > 0 and not Floor(link, self._floor).available(self._place_in_trace(client), now)

    def away(self, now: float) -> NDArray[Any] | None:
        joins, leaves = self._roster.joins, self._roster.leaves
        if joins is None and leaves is None and not self._groups:
            return None
        gone = np.zeros(len(self._roster), dtype=bool)
        if joins is not None:
            gone |= joins > now
        if leaves is not None:
            gone |= leaves <= now
        for availability, places, numbers in self._groups:
            gone[places] |= ~availability.available_many(numbers, now)
        return np.flatnonzero(gone)

    def next_coming(self, now: float, *without: Collection[int]) -> float | None:
        """The next moment at which somebody comes, or comes back, who is none of these."""
        joins, leaves = self._roster.joins, self._roster.leaves
        if joins is None and not self._groups:
            return None
        able = np.ones(len(self._roster), dtype=bool) if leaves is None else leaves > now
        for some in without:
            able[list(some)] = False
        moments: list[float] = []
        if joins is not None:
            later = able & (joins > now) & np.isfinite(joins)
            if leaves is not None:
                later &= joins < leaves
            moments += [float(joins[later].min())] if later.any() else []
            able &= joins <= now
        for availability, places, numbers in self._groups:
            absent = np.flatnonzero(able[places] & ~availability.available_many(numbers, now))
            back = availability.next_change_many(numbers[absent], now)
            if leaves is not None:
                back = back[back < leaves[places[absent]]]
            moments += [float(back.min())] if back.size else []
        return min((moment for moment in moments if moment < np.inf), default=None)
