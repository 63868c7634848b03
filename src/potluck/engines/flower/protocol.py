"""What the server and a client machine say to each other: envelopes of a small JSON head and a body of bytes.

| kind     | the server asks                                           | the machine answers                           |
|----------|-----------------------------------------------------------|-----------------------------------------------|
| hello    | who are you, with these rules for splitting samples?      | its clients: name, device, samples, shape     |
| join     | this is the run: method, model, first private state       | yes, or why not                               |
| task     | do this leg, with this mail; these tasks were accepted    | leg done; the last leg brings the update      |
| evaluate | evaluate your models on your test rows; keep your own?    | right answers, loss, samples                  |
| secure   | this step of a secure sum: keys, shares, masked, opened   | the bytes of the step                         |
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

from potluck.errors import BadInput, Code

PROTOCOL = 2  # the machine of another version is asked to update
HEAD_LIMIT = 1 << 20  # bytes of JSON; heads hold names and numbers only


@dataclass(frozen=True)
class Envelope:
    head: dict[str, Any]
    body: bytes = b""

    @property
    def kind(self) -> str:
        return str(self.head.get("kind", ""))


@dataclass(frozen=True)
class Reply:
    """The answer to a message: an envelope, or the reason why there is none."""

    message: str  # the id of the message it answers
    envelope: Envelope | None
    error: str = ""
    at: float = 0.0  # when the answer was created, in seconds since the epoch


class Transport(Protocol):
    """All that the fleet needs to reach client machines."""

    def nodes(self) -> dict[int, tuple[str, str]]:
        """The nodes that are online: the name each was registered under ('' for none), and since when it is online."""

    def push(self, node: int, envelope: Envelope, ttl: float) -> str | None:
        """Send. Return the message's id, or None where the node is not known."""

    def pull(self, messages: Collection[str]) -> list[Reply]:
        """The replies that have arrived. Each is returned once."""


def head_of(text: str) -> dict[str, Any]:
    """Parse a head. Anything but a JSON object raises BadInput."""
    if len(text) > HEAD_LIMIT:
        raise BadInput(Code.MESSAGE, f"message: its head must have at most {HEAD_LIMIT} characters, got {len(text)}.")
    try:
        head = json.loads(text, parse_constant=_not_finite)
    except (ValueError, RecursionError) as error:
        raise BadInput(Code.MESSAGE, f"message: its head must be JSON ({error}).") from None
    if not isinstance(head, dict):
        raise BadInput(Code.MESSAGE, f"message: its head must be an object, got {type(head).__name__}.")
    return head


def _not_finite(name: str) -> float:
    raise ValueError(f"{name} is not a number of JSON")
