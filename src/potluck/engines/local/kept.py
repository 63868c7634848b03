"""What stays on a client's side after a task: its private state, and the model as its training left it.

Only accepted tasks count. Models are kept of the clients that are evaluated, so their memory does not grow with the
fleet. They are copies, so that the stacks they were rows of can be freed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

from potluck.engines.local.store import Store
from potluck.fleet import Done, Params


class Kept:
    """By client index: private states, newest own models (`Done.own`), and the clients that ever did a task."""

    def __init__(self, private: Store, own: Store, evaluated: Collection[int] | None = None) -> None:
        self.private = private
        self._own = own
        self._evaluated = None if evaluated is None else frozenset(evaluated)  # None: all clients
        self._trained: set[int] = set()

    @property
    def folder(self) -> Path | None:
        """The folder for what does not fit in memory."""
        return self.private.folder

    @folder.setter
    def folder(self, folder: Path | None) -> None:
        self.private.folder = self._own.folder = folder

    def nobody(self) -> None:
        """Nobody is evaluated: keep no models."""
        self._evaluated = frozenset()

    def wants_own(self, client: int) -> bool:
        return self._evaluated is None or client in self._evaluated

    def wanted(self, clients: Sequence[int]) -> Iterable[bool]:
        """`wants_own` of each."""
        if not self._evaluated:
            return repeat(self._evaluated is None, len(clients))
        return [client in self._evaluated for client in clients]

    @property
    def untouched(self) -> bool:
        """Whether no client has a private state of its own yet."""
        return not self.private

    def accept(self, client: int, done: Done) -> None:
        """Take what an accepted task left."""
        self.take(client, done.mine, done.own)

    def take(self, client: int, mine: Any, own: Params | None) -> None:
        if mine is not None:
            self.private.put(client, mine)
        if self.wants_own(client):
            self._trained.add(client)
            if own is not None:
                self._own.put(client, own)

    def took(self, clients: Collection[int]) -> None:
        """Accepted tasks of these clients left nothing."""
        self._trained.update(clients if self._evaluated is None else self._evaluated.intersection(clients))

    def own(self, client: int) -> Params | None:
        """The model as the last accepted training left it, where the method says it."""
        found: Params | None = self._own.get(client)
        return found

    def trained(self, client: int) -> bool:
        """Whether an evaluated client ever had an accepted task."""
        return client in self._trained

    def snapshot(self) -> dict[str, Any]:
        return {
            "mine": {client: self.private.get(client) for client in self.private},
            "own": {client: self._own.get(client) for client in self._own},
            "trained": sorted(self._trained),
        }

    def restore(self, saved: dict[str, Any]) -> None:
        for client, value in saved["mine"].items():
            self.private.put(client, value)
        for client, value in saved.get("own", {}).items():
            self._own.put(client, value)
        self._trained = {client for client in saved.get("trained", saved["counts"]) if self.wants_own(client)}
