"""A client's private state on its own disk: what each task left, until the server cannot need it any more.

Each message of the server says which task of this client it accepted last, and which one its last checkpoint knows.
The client's state is what the last accepted task left, so a refused task has no effect. A server that was killed and
resumes from a checkpoint finds the state that belongs to that checkpoint, and the answers that it had received.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any
from urllib.parse import quote

from potluck.errors import BadInput, Code
from potluck.files import make_folder, write_bytes
from potluck.wire.codec import decode, encode


@dataclass(frozen=True)
class Working:
    """A task between two legs."""

    ticket: str
    leg: int  # the next one to do
    task: Any
    carry: Any
    worked: float  # seconds so far


@dataclass(frozen=True)
class Finished:
    """What a finished task left."""

    update: Any
    mine: Any
    handoff: Any
    worked: float
    own: Any = None  # the model as training left it; it stays here


class Journal:
    """The tasks of one client in one run, by ticket."""

    def __init__(self, folder: Path, classes: Mapping[str, type]) -> None:
        self._folder = folder
        self._classes = classes
        self._lock = RLock()  # a client that trains may be asked to evaluate its model
        self._kept: dict[str, Finished] = {}
        make_folder(folder, private=True)
        self._order: list[list[str]] = self._index()  # (ticket, ticket of the newest hand-off by then)

    def __contains__(self, ticket: str) -> bool:
        with self._lock:
            self._order = self._index()  # in a simulation another process may have worked for this client
            return any(one == ticket for one, _ in self._order)

    def finished(self, ticket: str) -> Finished:
        with self._lock:
            if ticket not in self._kept:
                value = decode(self._path(ticket).read_bytes(), self._classes)
                self._kept[ticket] = Finished(**value)
            return self._kept[ticket]

    def mine(self, ticket: str, private: Any) -> Any:
        """The private state that a task left; '' stands for before the first one."""
        if not ticket:
            return private
        if ticket not in self:
            raise BadInput(
                Code.DEPLOY_FOLDER, f"journal: the state that task {ticket} left is missing; was the folder removed?"
            )
        return self.finished(ticket).mine

    def own(self, ticket: str) -> Any:
        """The model as the training up to this task left it; None where the method does not say, or before any."""
        return self.finished(ticket).own if ticket and ticket in self else None

    def handoff(self, ticket: str) -> Any:
        """The newest hand-off when this task was done."""
        with self._lock:
            self._order = self._index()
            source = next((source for one, source in self._order if one == ticket), "")
            return self.finished(source).handoff if source else None

    @property
    def working(self) -> Working | None:
        path = self._folder / "working.safetensors"
        return Working(**decode(path.read_bytes(), self._classes)) if path.exists() else None

    def leave(self, working: Working) -> None:
        """Keep what the next leg needs."""
        write_bytes(self._folder / "working.safetensors", encode(dict(vars(working))), private=True)

    def finish(self, ticket: str, finished: Finished, before: str) -> None:
        """Keep a finished task; `before` is the ticket of the task whose state it started with."""
        with self._lock:
            write_bytes(self._path(ticket), encode(dict(vars(finished))), private=True)
            source = ticket
            if finished.handoff is None:
                source = next((source for one, source in self._order if one == before), "")
            self._order.append([ticket, source])
            self._write()
            self._kept[ticket] = finished
            (self._folder / "working.safetensors").unlink(missing_ok=True)

    def forget(self, safe: str, taken: str) -> None:
        """Drop what no server can ask for again: everything before the task that its last checkpoint knows."""
        with self._lock:
            place = next((i for i, (one, _) in enumerate(self._order) if one == safe), None)
            if not place:
                return
            left = self._order[place:]
            needed = {one for pair in left for one in pair} | {taken}
            gone = [one for one, _ in self._order if one not in needed]
            self._order = [pair for pair in self._order if pair[0] in needed]
            self._write()
            for ticket in gone:
                self._kept.pop(ticket, None)
                self._path(ticket).unlink(missing_ok=True)

    def _path(self, ticket: str) -> Path:
        return self._folder / f"done-{quote(ticket, safe='')}.safetensors"

    def _index(self) -> list[list[str]]:
        path = self._folder / "index.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []

    def _write(self) -> None:
        write_bytes(self._folder / "index.json", json.dumps(self._order).encode(), private=True)
