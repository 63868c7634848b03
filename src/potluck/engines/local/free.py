"""Who has nothing to do: all but a few in rounds, a few of many in asynchronous runs. Neither is listed in full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from potluck.engines.local.presence import Presence
from potluck.engines.local.roster import Others, Roster
from potluck.fleet import ClientId

FEW = 64  # idle clients that are listed one by one


class Free:
    def __init__(self, roster: Roster, presence: Presence) -> None:
        self._roster = roster
        self._presence = presence
        self._few: set[int] | None = None  # who is not at work, kept once they are few

    def idle(self, now: float, busy: Mapping[int, int], unfit: Mapping[int, str]) -> Sequence[ClientId]:
        """Who is here, is not at work and can hold the model."""
        names = self._roster.names
        if self._few is not None and len(self._few) <= FEW:
            return [names[i] for i in sorted(self._few) if self._presence.here(i, now)]
        away = self._presence.away(now)
        taken = busy.keys() | unfit.keys()
        if self._few is None and len(self._roster) - len(taken) <= FEW:
            # Nearly everybody is at work, as in asynchronous runs: from now on the few others are kept by hand.
            self._few = set(range(len(self._roster))) - taken
        if away is None:
            return Others(names, list(taken))
        here = np.ones(len(self._roster), dtype=bool)
        here[away] = False
        here[list(taken)] = False
        return [names[int(i)] for i in np.flatnonzero(here)]

    def began(self, client: int) -> None:
        if self._few is not None:
            self._few.discard(client)

    def ended(self, client: int) -> None:
        if self._few is not None:
            self._few.add(client)

    def forget(self) -> None:
        """Another state was restored: who is free is found anew."""
        self._few = None
