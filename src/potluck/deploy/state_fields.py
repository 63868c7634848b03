"""Which fields of the server's state a personal model is made from, found out by watching `Method.personal` read them.

A personal model is computed on its client's machine, from the server's state and the client's private state. The server
must not send its whole state: it may hold the models of all other clients. Methods do not declare which fields
`personal` reads, so both sides find out. The server calls `personal` once with the first private state and records the
fields it reads (`RecordedState`). It sends those. On the client the private state may lead `personal` to another field.
`PartialState` then raises `FieldMissing`, the client answers with the name, and the server sends that field as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from potluck.fleet import ClientId, Params
from potluck.methods import Method


class RecordedState:
    """On the server: the whole state, which records the fields that are read."""

    def __init__(self, state: Any, read: set[str]) -> None:
        self._state, self._read = state, read

    def __getattr__(self, name: str) -> Any:
        self._read.add(name)
        return getattr(self._state, name)


class PartialState:
    """On the client: the fields that the server sent. Any other raises FieldMissing."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def __getattr__(self, name: str) -> Any:
        if name in self._fields:
            return self._fields[name]
        raise FieldMissing(name)


class FieldMissing(Exception):
    """`personal` read a field of the state that the server did not send."""


class UnknownPrivateState:
    """On the server: stands for the private state of a client that is offline. Any use raises PrivateStateNeeded."""

    def __getattr__(self, name: str) -> Any:
        raise PrivateStateNeeded(name)

    def __getitem__(self, key: Any) -> Any:
        raise PrivateStateNeeded(str(key))

    def __iter__(self) -> Any:
        raise PrivateStateNeeded("its items")

    def __bool__(self) -> bool:
        raise PrivateStateNeeded("its truth value")


class PrivateStateNeeded(Exception):
    """`personal` used the client's private state, which only the client has."""


def personal_without_client(method: Method, state: Any, client: ClientId) -> Params | None:
    """The personal model of a client that is offline, or None where it depends on the client's private state."""
    unknown = UnknownPrivateState()
    try:
        weights: Any = method.personal(state, client, unknown)
    except PrivateStateNeeded:
        return None
    return None if weights is unknown else dict(weights)


def fields_read(method: Method, state: Any, client: ClientId, private: Any) -> set[str]:
    """The fields that `personal` reads for a client with this private state."""
    found: set[str] = set()
    method.personal(RecordedState(state, found), client, private)
    return found & set(vars(state))
