"""Which clients there are, which are online, and which are idle.

A fleet may have a million clients, so nothing here lists them all in each step. `Roster` looks up one client at a time.
`Presence` is a function of the moment. `Idle` returns either the few idle clients or all without the few busy ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from potluck import keys
from potluck.devices import Availability, Device, Hours, Link
from potluck.devices.floor import Floor
from potluck.engines.local.flight import Situation
from potluck.fleet import ClientId, Profile

FEW = 64  # idle clients that are listed one by one
SEARCHED = 1000  # clients of a fleet that is searched for idle ones by drawing
ATTEMPTS = 12


class Roster(Mapping[ClientId, Profile]):
    """The registered clients in a fixed order; a client index is a position in it."""

    def __init__(
        self,
        names: Sequence[ClientId],
        samples: NDArray[Any],
        equipment: Sequence[tuple[Device, Link]],
        codes: NDArray[np.int64],
        kinds: Sequence[str] | None = None,
        partners: Sequence[int | None] | None = None,
        joins: NDArray[Any] | None = None,
        leaves: NDArray[Any] | None = None,
    ) -> None:
        self.names = names
        self.samples = samples
        self.equipment = equipment
        self.codes = codes  # client index -> its entry in the equipment
        self._kinds = kinds
        self._partners = partners
        self.joins = joins
        self.leaves = leaves
        self._indices: dict[ClientId, int] | None = None

    def among(self, places: NDArray[np.int64], samples: NDArray[Any]) -> Roster:
        """Some of the clients, with these numbers of samples; not for clients with partners."""
        joins, leaves = (None if moments is None else moments[places] for moments in (self.joins, self.leaves))
        names = [self.names[int(i)] for i in places]
        return Roster(names, samples, self.equipment, self.codes[places], joins=joins, leaves=leaves)

    def index_of(self, name: ClientId) -> int:
        """The index of a client."""
        if self._indices is None:
            # Names that are made on demand compute their index; a list would be searched from its start.
            if len(self.names) > 200_000 and not isinstance(self.names, list):
                return self.names.index(name)
            self._indices = {name: i for i, name in enumerate(self.names)}
        return self._indices[name]

    @property
    def alike(self) -> bool:
        """Whether clients with the same equipment differ in nothing else: none has a partner, and none leaves."""
        return self._partners is None and self.leaves is None

    def device(self, i: int) -> Device:
        return self.equipment[int(self.codes[i])][0]

    def link(self, i: int) -> Link:
        return self.equipment[int(self.codes[i])][1]

    def partner(self, i: int) -> int | None:
        return None if self._partners is None else self._partners[i]

    def relay(self, i: int) -> Link | None:
        """The link of the access point through which a client reaches the server, if it is behind one."""
        partner = self.partner(i)
        if partner is None or self._kinds is None or self._kinds[partner] != "access-point":
            return None
        return self.link(partner)

    def __getitem__(self, name: ClientId) -> Profile:
        try:
            i = self.index_of(name)
        except ValueError:
            raise KeyError(name) from None
        partner = self.partner(i)
        return Profile(
            device=self.device(i).name,
            link=self.link(i).name,
            samples=int(self.samples[i]),
            kind="client" if self._kinds is None else self._kinds[i],
            partner=None if partner is None else self.names[partner],
            memory=self.device(i).memory,
            storage=self.device(i).storage,
            macs_per_second=self.device(i).macs_per_second,
        )

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


class Others(Sequence[ClientId]):
    """The roster without a few clients. The k-th remaining name is found by bisection, not by walking the roster."""

    def __init__(self, names: Sequence[ClientId], without: Sequence[int]) -> None:
        self._names = names
        # without[j] - j names of the roster come before the j-th absent one.
        self._gaps = [index - j for j, index in enumerate(sorted(without))]

    def __iter__(self) -> Iterator[ClientId]:
        return super().__iter__() if self._gaps else iter(self._names)

    def __len__(self) -> int:
        return len(self._names) - len(self._gaps)

    @overload
    def __getitem__(self, k: int) -> ClientId: ...
    @overload
    def __getitem__(self, k: slice) -> list[ClientId]: ...
    def __getitem__(self, k: int | slice) -> ClientId | list[ClientId]:
        if isinstance(k, slice):
            return [self[i] for i in range(*k.indices(len(self)))]
        if k < 0:
            k += len(self)
        if not 0 <= k < len(self):
            raise IndexError(k)
        return self._names[k + bisect_right(self._gaps, k)]


def keeps_hours(device: Device) -> bool:
    """Whether `fleet.train_when` holds for a device; one without a battery is always plugged in."""
    return device.battery != 0


def hour_numbers(hours: Hours, names: Sequence[ClientId], clients: Iterable[Any], seed: int) -> NDArray[np.int64]:
    """The numbers by which the windows of these clients are drawn."""
    if not hours.spread:  # the same hours for everybody
        return np.zeros(len(list(clients)), dtype=np.int64)
    return np.array([keys.number(seed, names[int(i)], "hours") for i in clients], dtype=np.int64)


class Presence:
    """Who is online at a moment: joins and leaves, links that come and go. It has no state to save."""

    def __init__(self, roster: Roster, seed: int, floor: float = 0.0, hours: Hours | None = None) -> None:
        self._roster = roster
        self._hours = hours
        self._seed = seed
        self._floor = floor  # bit/s; a client with a slower link at the moment is cut off
        simple = roster.alike and not floor
        self._alike: dict[int, Situation] | None = {} if simple else None  # by equipment, where nothing else decides
        self._groups: list[tuple[Availability | Floor | Hours, NDArray[Any], NDArray[Any]]] = []
        for code, (device, link) in enumerate(roster.equipment):
            indices = np.flatnonzero(roster.codes == code)
            if hours is not None and keeps_hours(device):
                self._groups.append((hours, indices, hour_numbers(hours, roster.names, indices, seed)))
            if link.availability is not None:
                numbers = np.array([self._number(int(i)) for i in indices], dtype=np.int64)
                self._groups.append((link.availability, indices, numbers))
            if floor > 0:
                numbers = np.array([self._trace_number(int(i)) for i in indices], dtype=np.int64)
                self._groups.append((Floor(link, floor), indices, numbers))

    def _number(self, client: int) -> int:
        return keys.number(self._seed, self._roster.names[client], "presence")

    def _trace_number(self, client: int) -> int:
        return keys.number(self._seed, self._roster.names[client])  # as `flight.plan` has it

    @property
    def alike(self) -> bool:
        """Whether nothing but its equipment decides how a task for a client goes."""
        return self._alike is not None

    @cached_property
    def always(self) -> bool:
        """Whether all clients are here at all times."""
        return not self._groups and self._roster.joins is None and self._roster.leaves is None

    @property
    def constant(self) -> bool:
        """Whether all clients are here at all times, on links that never change."""
        steady = all(link.trace is None for _, link in self._roster.equipment)
        return self.alike and self.always and steady

    def leaves(self, client: int) -> float:
        """When a client leaves for good."""
        return float("inf") if self._roster.leaves is None else float(self._roster.leaves[client])

    def here(self, client: int, now: float) -> bool:
        joins, availability = self._roster.joins, self._roster.link(client).availability
        if (joins is not None and joins[client] > now) or self.leaves(client) <= now:
            return False
        if availability is not None and not availability.available(self._number(client), now):
            return False
        if self._hours is not None and keeps_hours(self._roster.device(client)):
            (number,) = hour_numbers(self._hours, self._roster.names, [client], self._seed)
            if not self._hours.available(int(number), now):
                return False
        return not self.slow(client, now)

    def here_many(self, clients: NDArray[np.int64], now: float) -> NDArray[np.bool_]:
        """`here` for some clients of a large fleet."""
        roster = self._roster
        found = np.ones(len(clients), dtype=bool)
        if roster.joins is not None:
            found &= roster.joins[clients] <= now
        if roster.leaves is not None:
            found &= roster.leaves[clients] > now
        for availability, indices, numbers in self._groups:
            places = np.minimum(np.searchsorted(indices, clients), len(indices) - 1)
            among = np.flatnonzero(indices[places] == clients)
            if len(among):
                found[among] &= availability.available_many(numbers[places[among]], now)
        return found

    def slow(self, client: int, now: float) -> bool:
        """Whether a client's link is below the floor at this moment."""
        link = self._roster.link(client)
        return self._floor > 0 and not Floor(link, self._floor).available(self._trace_number(client), now)

    def situation(self, client: int) -> Situation:
        """What decides how a task for this client goes: its device, its links, and when it goes away."""
        if self._alike is not None:
            code = int(self._roster.codes[client])
            known = self._alike.get(code)
            if known is None:
                known = self._alike[code] = Situation(*self._roster.equipment[code])
            return known
        return Situation(
            self._roster.device(client),
            self._roster.link(client),
            self._roster.relay(client),
            self.leaves(client),
            (lambda moment: self.slow(client, moment)) if self._floor else None,
        )

    def away(self, now: float) -> NDArray[Any] | None:
        joins, leaves = self._roster.joins, self._roster.leaves
        if joins is None and leaves is None and not self._groups:
            return None
        gone = np.zeros(len(self._roster), dtype=bool)
        if joins is not None:
            gone |= joins > now
        if leaves is not None:
            gone |= leaves <= now
        for availability, indices, numbers in self._groups:
            gone[indices] |= ~availability.available_many(numbers, now)
        return np.flatnonzero(gone)

    def next_coming(self, now: float, *without: Collection[int]) -> float | None:
        """The next moment at which a client comes online that is in none of these collections, or None."""
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
        for availability, indices, numbers in self._groups:
            absent = np.flatnonzero(able[indices] & ~availability.available_many(numbers, now))
            back = availability.next_change_many(numbers[absent], now)
            if leaves is not None:
                back = back[back < leaves[indices[absent]]]
            moments += [float(back.min())] if back.size else []
        return min((moment for moment in moments if moment < np.inf), default=None)


class Idle:
    """Which clients have nothing to do. A synchronous round has many, an asynchronous run few."""

    def __init__(self, roster: Roster, presence: Presence) -> None:
        self._roster = roster
        self._presence = presence
        self._few: set[int] | None = None  # clients that are not at work, kept up to date once they are few

    def idle(self, now: float, *others: Mapping[int, Any]) -> Sequence[ClientId]:
        """Clients that are online and not among the others (at work, unfit, resting), in the order of the roster."""
        names = self._roster.names
        if self._few is not None and len(self._few) <= FEW:
            always = self._presence.always
            if always and len(self._few) == 1:  # after an arrival of an asynchronous run
                (client,) = self._few
                return [] if any(client in some for some in others) else [names[client]]
            free = sorted(self._few)
            for some in others:
                if some:
                    free = [i for i in free if i not in some]
            return [names[i] for i in free if always or self._presence.here(i, now)]
        away = self._presence.away(now)
        taken = set[int]().union(*others)
        if self._few is None and len(self._roster) - len(taken) <= FEW:
            # Nearly all clients are at work, as in asynchronous runs: from now on the few others are kept in a set.
            self._few = set(range(len(self._roster))) - taken
        if away is None:
            return Others(names, list(taken))
        here = np.ones(len(self._roster), dtype=bool)
        here[away] = False
        here[list(taken)] = False
        return [names[int(i)] for i in np.flatnonzero(here)]

    def some(self, count: int, now: float, key: int, *others: Mapping[int, Any]) -> Sequence[ClientId]:
        """So many of the clients that are online and not among the others, drawn at random.

        In a large fleet, drawn clients that are not are left out, which finds enough of them unless few are.
        """
        size, found = len(self._roster), dict[int, None]()
        if size > SEARCHED:
            for attempt in range(ATTEMPTS):
                base = np.array([keys.number(key, attempt)], dtype=np.int64)
                drawn = (keys.shares_of(base, 8 + 4 * (count - len(found)))[:, 0] * size).astype(np.int64)
                for client in drawn[self._presence.here_many(drawn, now)].tolist():
                    if len(found) < count and not any(client in some for some in others):
                        found[client] = None
                if len(found) == count:
                    return [self._roster.names[client] for client in found]
        idle = self.idle(now, *others)
        if len(idle) <= count:
            return idle
        chosen = keys.rng(key, "some").choice(len(idle), size=count, replace=False)
        return [idle[int(index)] for index in sorted(chosen)]

    def began(self, client: int) -> None:
        if self._few is not None:
            self._few.discard(client)

    def ended(self, client: int) -> None:
        if self._few is not None:
            self._few.add(client)

    def forget(self) -> None:
        """Another state was restored, so the set is out of date."""
        self._few = None
