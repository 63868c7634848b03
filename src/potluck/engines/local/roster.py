"""Who may take part: names, devices, links and sample counts, looked up one at a time so that a million cost little."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from potluck.devices import Device, Link
from potluck.fleet import ClientId, Profile


class Roster(Mapping[ClientId, Profile]):
    """The registered clients in a fixed order. `at` numbers are positions, never ids."""

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
        self.codes = codes  # client -> its entry in the equipment
        self._kinds = kinds
        self._partners = partners
        self.joins = joins
        self.leaves = leaves
        self._places: dict[ClientId, int] | None = None

    def place(self, name: ClientId) -> int:
        if self._places is None:
            if len(self.names) > 200_000:  # lazy names know their own place
                return self.names.index(name)
            self._places = {name: i for i, name in enumerate(self.names)}
        return self._places[name]

    def device(self, i: int) -> Device:
        return self.equipment[int(self.codes[i])][0]

    def link(self, i: int) -> Link:
        return self.equipment[int(self.codes[i])][1]

    def partner(self, i: int) -> int | None:
        return None if self._partners is None else self._partners[i]

    def relay(self, i: int) -> Link | None:
        """The link behind a client's own: that of the access point through which it reaches the server."""
        partner = self.partner(i)
        if partner is None or self._kinds is None or self._kinds[partner] != "access-point":
            return None
        return self.link(partner)

    def __getitem__(self, name: ClientId) -> Profile:
        try:
            i = self.place(name)
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
    """The roster without a few: the k-th remaining name by bisection, so that nobody walks the whole roster."""

    def __init__(self, names: Sequence[ClientId], without: Sequence[int]) -> None:
        self._names = names
        # without[j] - j names of the roster come before the j-th absent one.
        self._gaps = [place - j for j, place in enumerate(sorted(without))]

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
