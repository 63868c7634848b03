"""What server and node say to each other: an envelope of a small JSON head and a body of bytes, and who carries it.

| kind  | server asks                                            | node answers                                    |
|-------|--------------------------------------------------------|-------------------------------------------------|
| hello | who are you, with these rules for the split?           | its clients: name, device, samples, shape       |
| join  | here is the run: method, model, first private state    | yes, or why not                                 |
| task  | do this leg; what was taken so far; mail rides along   | this leg is done; the last one brings the update|
| look  | how good is your model on your own test rows? keep it? | right answers, loss, samples                    |
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

from potluck.errors import BadInput, Code

PROTOCOL = 1
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
    """What came back for a message: an envelope, or the reason why there is none."""

    message: str  # the id of the message it answers
    envelope: Envelope | None
    error: str = ""
    at: float = 0.0  # when the answer was made, in seconds since the epoch


class Wire(Protocol):
    """All that the fleet needs of a transport; a fake one fits on a page."""

    def nodes(self) -> dict[int, tuple[str, str]]:
        """The nodes that are here now: the name each was registered under ('' for none), and since when it is here."""

    def push(self, node: int, envelope: Envelope, ttl: float) -> str | None:
        """Send; the message's id, or None where the node is not known."""

    def pull(self, messages: Collection[str]) -> list[Reply]:
        """The replies that have come; each is handed out once."""


def head_of(text: str) -> dict[str, Any]:
    """The head in this text, refused where it is none."""
    if len(text) > HEAD_LIMIT:
        raise BadInput(Code.MESSAGE, f"message: a head of {len(text)} characters, the limit is {HEAD_LIMIT}.")
    try:
        head = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(Code.MESSAGE, f"message: its head is not JSON ({error}).") from None
    if not isinstance(head, dict):
        raise BadInput(Code.MESSAGE, "message: its head is not a table.")
    return head
