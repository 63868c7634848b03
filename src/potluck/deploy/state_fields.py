"""What a client is sent of the server's state, so that its personal model can be made on its own machine.

The server's state may hold the models of all clients, so no client chooses what it is sent. The method declares it
(`Method.visible`), reduced to the one client. Where it declares nothing, a client is sent the fields that the shared
model is made from. On the client, `PartialState` has those fields and no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from potluck.errors import BadInput, Code
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
    """On the client: the fields that the server sent. Any other raises BadInput."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def __getattr__(self, name: str) -> Any:
        if name in self._fields:
            return self._fields[name]
        raise not_declared(name)


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


def visible(method: Method, state: Any, client: ClientId) -> dict[str, Any]:
    """What of the server's state a client may see."""
    declared = method.visible(state, client)
    if declared is not None:
        return declared
    found: set[str] = set()
    method.shared(RecordedState(state, found))
    return {name: getattr(state, name) for name in sorted(found & set(vars(state)))}


def check_visible(method: Method, state: Any, client: ClientId, private: Any) -> None:
    """Raise BadInput where `personal` reads more of the state than clients may see."""
    if private is not None and personal_without_client(method, state, client) is None:
        method.personal(PartialState(visible(method, state, client)), client, private)


def not_declared(name: str) -> BadInput:
    sentence = f"method: personal reads state.{name}, which clients may not see."
    return BadInput(Code.METHOD_OWN, f'{sentence} If it tells nothing of other clients: VISIBLE = ("{name}",).')
