"""Data that changes during a run: at set moments some clients get other labels, or other rows.

This is the scenario of EchoPFL's section 7.5, where participants changed what they kept and what they deleted. A leg
trains on the data of the moment it starts. A model is tested on the data of the moment of the evaluation.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from potluck.errors import Code, must_be, unknown
from potluck.keys import rng

KINDS = {
    "labels": "every label becomes the next one, the last becomes the first: with two classes they change places",
    "rows": "the clients concerned pass their rows on, each to the next of them",
}
Labels = tuple[int, ...] | None


@dataclass(frozen=True)
class DriftSpec:
    at: tuple[float, ...] = ()  # seconds since the start of the run, in order
    kind: str = "labels"
    clients: float | tuple[str, ...] = 0.2  # the clients that change: a share, chosen by the seed, or names

    def __post_init__(self) -> None:
        object.__setattr__(self, "at", tuple(self.at))
        if not isinstance(self.clients, int | float):
            object.__setattr__(self, "clients", tuple(self.clients))
        if self.kind not in KINDS:
            raise unknown(Code.SETTING_VALUE, "drift.kind", self.kind, KINDS)
        if any(moment < 0 for moment in self.at) or list(self.at) != sorted(set(self.at)):
            wanted = "moments from 0 on, in order and each once"
            raise must_be(Code.SETTING_VALUE, "drift.at", wanted, list(self.at))
        if isinstance(self.clients, int | float) and not 0 < self.clients <= 1:
            wanted = "a share above 0 and at most 1, or names of clients"
            raise must_be(Code.SETTING_VALUE, "drift.clients", wanted, self.clients)


class Drift:
    """Says which data a client has at a moment. Clients are counted by their position in `names`."""

    def __init__(self, spec: DriftSpec, names: Sequence[str], classes: int, seed: int) -> None:
        self.moments = spec.at
        self._kind = spec.kind
        self._classes = classes
        self._who = _chosen(spec, names, seed) if spec.at else []
        self._order = {place: k for k, place in enumerate(self._who)}

    @property
    def concerned(self) -> list[int]:
        """The client indices whose data changes."""
        return self._who

    def phase(self, at: float) -> int:
        """Count the changes up to a moment."""
        return bisect_right(self.moments, at)

    def view(self, client: int, at: float) -> tuple[int, Labels]:
        """Return the client whose rows this client has at a moment, and the new labels (None: unchanged)."""
        phase = self.phase(at) if self.moments else 0
        if not phase or client not in self._order:
            return client, None
        if self._kind == "rows":
            return self._who[(self._order[client] + phase) % len(self._who)], None
        if phase % self._classes == 0:
            return client, None
        return client, tuple((label + phase) % self._classes for label in range(self._classes))


def _chosen(spec: DriftSpec, names: Sequence[str], seed: int) -> list[int]:
    if isinstance(spec.clients, tuple):
        places = {name: i for i, name in enumerate(names)}
        for name in spec.clients:
            if name not in places:
                raise unknown(Code.UNKNOWN_CLIENT, "drift.clients: client", name, list(places)[:50])
        return [places[name] for name in spec.clients]
    count = max(2 if spec.kind == "rows" else 1, round(spec.clients * len(names)))
    return sorted(int(i) for i in rng(seed, "drift").choice(len(names), size=min(count, len(names)), replace=False))
