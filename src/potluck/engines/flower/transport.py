"""Flower's Grid as a `Transport`, and envelopes as Flower records."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from potluck.engines.flower.protocol import Envelope, Reply, head_of
from potluck.errors import BadInput, Code

# Flower's error codes (flwr 1.41.0).
ERRORS = {
    0: "its process died",
    1: "its program could not be loaded",
    2: "its program failed",
    3: "it did not answer in time",
    4: "its answer came too late",
    5: "its node went offline",
    8: "its process died",
}
INLINE = 4 << 20  # bytes of the largest body sent in one piece with its head: each further piece is one more request


def to_records(envelope: Envelope) -> RecordDict:
    """A small body goes with its head, a large one as an array of bytes, which Flower sends in chunks."""
    head = json.dumps(envelope.head)
    if len(envelope.body) <= INLINE:
        return RecordDict({"potluck": ConfigRecord({"head": head, "body": envelope.body})})
    body = Array("uint8", (len(envelope.body),), "potluck.bytes", envelope.body)
    return RecordDict({"potluck": ConfigRecord({"head": head}), "body": ArrayRecord({"bytes": body})})


def from_records(content: RecordDict) -> Envelope:
    """The envelope in a Flower message. Any other content raises BadInput."""
    records: Any = content
    try:
        text = records["potluck"]["head"]
        body = records["potluck"]["body"] if "body" in records["potluck"] else records["body"]["bytes"].data
    except (KeyError, TypeError, AttributeError) as error:
        raise BadInput(Code.MESSAGE, f"message: it has no {error}, so it is not one of potluck's.") from None
    if not isinstance(text, str) or not isinstance(body, bytes):
        raise BadInput(Code.MESSAGE, "message: its head must be text and its body bytes.")
    return Envelope(head_of(text), body)


class GridTransport:
    """Pushes one message at a time: of a list, Flower does not say which messages failed."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def nodes(self) -> dict[int, tuple[str, str]]:
        return {node.node_id: (node.name, node.last_activated_at) for node in self._grid.get_nodes()}

    def push(self, node: int, envelope: Envelope, ttl: float) -> str | None:
        kind = "train" if envelope.kind == "task" else "query"
        pushed = list(self._grid.push_messages([Message(to_records(envelope), node, kind, ttl=ttl)]))
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
                replies.append(Reply(about, from_records(message.content), "", at))
            except BadInput as error:
                replies.append(Reply(about, Envelope({"refused": error.told}), "", at))
        return replies
