"""Flower's Grid as a `Wire`, and our envelopes as Flower messages: the server's side of the transport."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from potluck.engines.flower.words import Envelope, Reply, head_of
from potluck.errors import BadInput, Code

# What Flower's error codes mean for a task (flwr 1.41.0).
ERRORS = {
    0: "its process died",
    1: "its program could not be loaded",
    2: "its program failed",
    3: "it did not answer in time",
    4: "its answer came too late",
    5: "its node went away",
    8: "its process died",
}


INLINE = 4 << 20  # bytes; each part of a message is a request of its own, so a small one is one part


def packed(envelope: Envelope) -> RecordDict:
    """A large body travels as an array of bytes, which Flower sends in chunks; a small one beside its head."""
    head = json.dumps(envelope.head)
    if len(envelope.body) <= INLINE:
        return RecordDict({"potluck": ConfigRecord({"head": head, "body": envelope.body})})
    body = Array("uint8", (len(envelope.body),), "potluck.bytes", envelope.body)
    return RecordDict({"potluck": ConfigRecord({"head": head}), "body": ArrayRecord({"bytes": body})})


def unpacked(content: RecordDict) -> Envelope:
    """An envelope, refused where the content is none."""
    records: Any = content
    try:
        text = records["potluck"]["head"]
        body = records["potluck"]["body"] if "body" in records["potluck"] else records["body"]["bytes"].data
    except (KeyError, TypeError, AttributeError) as error:
        raise BadInput(Code.MESSAGE, f"message: it has no {error} where potluck's messages do.") from None
    if not isinstance(text, str) or not isinstance(body, bytes):
        raise BadInput(Code.MESSAGE, "message: its head must be text and its body bytes.")
    return Envelope(head_of(text), body)


class GridWire:
    """One message per push: a list loses track of which ones failed."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def nodes(self) -> dict[int, tuple[str, str]]:
        return {node.node_id: (node.name, node.last_activated_at) for node in self._grid.get_nodes()}

    def push(self, node: int, envelope: Envelope, ttl: float) -> str | None:
        kind = "train" if envelope.kind == "task" else "query"
        pushed = list(self._grid.push_messages([Message(packed(envelope), node, kind, ttl=ttl)]))
        return pushed[0] if pushed and pushed[0] else None

    def pull(self, messages: Collection[str]) -> list[Reply]:
        replies = []
        for message in self._grid.pull_messages(list(messages)):
            about, at = message.metadata.reply_to_message_id, message.metadata.created_at
            if message.has_error():
                code = message.error.code
                reason = ERRORS.get(code, f"Flower's error {code}")
                detail = " ".join(str(message.error.reason or "").split())[:200]
                replies.append(Reply(about, None, f"{reason} ({detail})" if detail else reason, at))
                continue
            try:
                replies.append(Reply(about, unpacked(message.content), "", at))
            except BadInput as error:
                replies.append(Reply(about, Envelope({"refused": error.told}), "", at))
        return replies
