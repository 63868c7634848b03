"""The server's part of one secure sum: it passes on keys and sealed shares, adds up, and takes the masks away."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from potluck.secure import field, keys
from potluck.secure.cost import PUBLIC, SEALED, SHARES
from potluck.secure.graph import Graph, graph_of
from potluck.secure.keys import Masks


class NotRecovered(Exception):
    """Too many clients went away: their masks cannot be taken from the sum."""


class SumServer:
    """One sum. Each step takes what clients answered to the step before; who did not answer is out."""

    def __init__(self, names: Sequence[str], number: str, dropout: float, corrupt: float) -> None:
        self.names = list(names)
        self.number = number
        self._place = {name: place for place, name in enumerate(self.names)}
        self.graph: Graph = graph_of(len(self.names), dropout, corrupt, int.from_bytes(os.urandom(8), "big"))
        self._keys: dict[str, bytes] = {}
        self._neighbours: dict[str, list[str]] = {}
        self._sealed: dict[str, dict[str, bytes]] = {}  # from -> to -> sealed shares
        self._stayed: list[str] = []
        self._total: NDArray[np.uint32] | None = None

    def neighbours(self, known: Mapping[str, bytes]) -> dict[str, list[tuple[str, bytes]]]:
        """After step 1: the neighbours of each client, with their public keys."""
        self._keys = {name: key for name, key in known.items() if name in self._place and len(key) == 2 * PUBLIC}
        for name in self._keys:
            rows = self.graph.neighbours[self._place[name]]
            self._neighbours[name] = [self.names[other] for other in rows if self.names[other] in self._keys]
        return {name: [(one, self._keys[one]) for one in others] for name, others in self._neighbours.items()}

    def held(self, shares: Mapping[str, Sequence[bytes]]) -> dict[str, dict[str, bytes]]:
        """After step 2: what each client holds of its neighbours."""
        for name, sealed in shares.items():
            others = self._neighbours.get(name, [])
            if len(sealed) == len(others) and all(len(one) == SEALED for one in sealed):
                self._sealed[name] = dict(zip(others, sealed, strict=True))
        return {
            name: {other: self._sealed[other][name] for other in self._neighbours[name] if other in self._sealed}
            for name in self._sealed
        }

    def add(self, name: str, masked: NDArray[np.uint32]) -> None:
        """After step 3: add one masked vector; one of another length, or without shares, is left out."""
        if name not in self._sealed or name in self._stayed:
            return
        if self._total is None:
            self._total = np.zeros(len(masked), dtype=np.uint32)
        if len(masked) == len(self._total):
            self._total += masked
            self._stayed.append(name)

    def asks(self) -> dict[str, tuple[list[str], list[str]]]:
        """Before step 4: for each client that stayed, its neighbours that stayed and those that went."""
        there = set(self._stayed)
        return {
            name: (
                [one for one in self._neighbours[name] if one in there],
                [one for one in self._neighbours[name] if one in self._sealed and one not in there],
            )
            for name in self._stayed
        }

    @property
    def stayed(self) -> list[str]:
        """Whose vectors are in the sum."""
        return self._stayed

    def total(self, opened: Mapping[str, Mapping[str, bytes]]) -> NDArray[np.uint32]:
        """After step 4: the sum. With too few shares NotRecovered is raised."""
        if self._total is None or len(self._stayed) < 1:
            raise NotRecovered("no client stayed")
        there = set(self._stayed)
        # A client that went matters if a client that stayed has a mask with it.
        gone = [n for n in self._sealed if n not in there and any(one in there for one in self._neighbours[n])]
        secrets = self._recovered([*self._stayed, *gone], opened)
        total, masks = self._total.copy(), Masks(len(self._total))
        for name in self._stayed:
            masks.add(total, keys.derived(secrets[name], f"{self.number} own"), -1)
        for name in gone:
            own = X25519PrivateKey.from_private_bytes(secrets[name])
            for other in self._neighbours[name]:
                if other in there:
                    key = keys.agreed(own, self._keys[other][PUBLIC:], f"{self.number} pair")
                    masks.add(total, key, -1 if other < name else 1)
        return total

    def _recovered(self, names: Sequence[str], opened: Mapping[str, Mapping[str, bytes]]) -> dict[str, bytes]:
        """The secret of each client, from the first shares that there are enough of."""
        threshold = self.graph.threshold
        points = np.zeros((len(names), threshold), dtype=np.int64)
        shares = np.zeros((len(names), threshold, field.LIMBS), dtype=np.uint32)
        for row, name in enumerate(names):
            found = 0
            for place, holder in enumerate(self._neighbours[name]):
                said = opened.get(holder, {}).get(name)
                if said is not None and len(said) == SHARES and found < threshold:
                    points[row, found] = place + 1
                    shares[row, found] = np.frombuffer(said, dtype="<u4")
                    found += 1
            if found < threshold:
                raise NotRecovered(f"{found} shares of {name}, and {threshold} are needed")
        return {name: secret.tobytes() for name, secret in zip(names, field.combine(points, shares), strict=True)}
