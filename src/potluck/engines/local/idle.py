"""Which clients of a fleet are idle: either the few that are, or all without the few that are at work."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from potluck import keys
from potluck.engines.local.roster import Presence, Roster
from potluck.fleet import ClientId

FEW = 64  # idle clients that are listed one by one
SEARCHED = 1000  # clients of a fleet that is searched for idle ones by drawing
ATTEMPTS = 12
DRAWN_SINGLY = 32  # for more draws, columns cost less


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
        if not self._gaps:
            return self._names[k]
        if k < 0:
            k += len(self)
        if not 0 <= k < len(self):
            raise IndexError(k)
        return self._names[k + bisect_right(self._gaps, k)]


class Placed(Sequence[ClientId]):
    """The clients at these places of the roster, named when somebody asks for them."""

    def __init__(self, names: Sequence[ClientId], places: NDArray[np.int64]) -> None:
        self._names, self._places = names, places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, k: int) -> ClientId: ...
    @overload
    def __getitem__(self, k: slice) -> list[ClientId]: ...
    def __getitem__(self, k: int | slice) -> ClientId | list[ClientId]:
        found = self._places[k].tolist()
        return [self._names[i] for i in found] if isinstance(k, slice) else self._names[found]

    def __iter__(self) -> Iterator[ClientId]:
        return map(self._names.__getitem__, self._places.tolist())


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
        places = np.flatnonzero(here)
        return Placed(names, places) if len(places) > SEARCHED else [names[i] for i in places.tolist()]

    def some(self, count: int, now: float, key: int, *others: Mapping[int, Any]) -> Sequence[ClientId]:
        """So many of the clients that are online and not among the others, drawn at random.

        In a large fleet, drawn clients that are not are left out, which finds enough of them unless few are.
        """
        size, found = len(self._roster), dict[int, None]()
        if size > SEARCHED:
            for attempt in range(ATTEMPTS):
                for client in self._drawn(keys.number(key, attempt), 8 + 4 * (count - len(found)), now):
                    if len(found) == count:
                        break
                    if not any(client in some for some in others):
                        found[client] = None
                if len(found) == count:
                    return [self._roster.names[client] for client in found]
        idle = self.idle(now, *others)
        if len(idle) <= count:
            return idle
        chosen = keys.rng(key, "some").choice(len(idle), size=count, replace=False)
        return [idle[int(index)] for index in sorted(chosen)]

    def _drawn(self, base: int, count: int, now: float) -> Iterator[int]:
        """So many clients of a large fleet at random, without those that are not here."""
        size = len(self._roster)
        if self._presence.always and count <= DRAWN_SINGLY:
            for begin, end in ((0, 2), (2, count)):  # the first one is idle nearly always
                yield from (int(share * size) for share in keys.shares(base, end)[begin:])
            return
        drawn = (keys.shares_of(np.array([base], dtype=np.int64), count)[:, 0] * size).astype(np.int64)
        yield from drawn[self._presence.here_many(drawn, now)].tolist()

    def began(self, client: int) -> None:
        if self._few is not None:
            self._few.discard(client)

    def ended(self, client: int) -> None:
        if self._few is not None:
            self._few.add(client)

    def forget(self) -> None:
        """Another state was restored, so the set is out of date."""
        self._few = None
