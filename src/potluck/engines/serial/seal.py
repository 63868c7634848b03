"""Frames that only holders of a board's key can make: `firmware/src/lock.c` on the host's side.

A tag is HMAC-SHA-256 over both sides' numbers of the conversation, the direction and the frame, cut to eight bytes. A
key is 32 bytes in a file of 64 hexadecimal digits that nobody else may read.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import struct
from dataclasses import dataclass
from pathlib import Path

from potluck.engines.serial.messages import TAIL, VERSION
from potluck.errors import BadInput, Code, must_be, unknown

KEY_BYTES, TAG = 32, 8
FROM_HOST, FROM_BOARD = b"\0", b"\1"


def read_key(path: Path) -> bytes:
    """The key in a file. Anything else there raises BadInput."""
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        raise BadInput(Code.BOARD_ADDRESS, f"key: {str(path)!r} cannot be read ({error.strerror}).") from None
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES or key == b"\xff" * KEY_BYTES:
        raise must_be(Code.BOARD_ADDRESS, "key", "a file of 64 hexadecimal digits, not all f", str(path))
    return key


def write_key(path: Path) -> None:
    """Make a key. A file that is there is kept, and raises BadInput."""
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(KEY_BYTES) + "\n")
    except OSError as error:
        raise BadInput(Code.OUTPUT_PLACE, f"key: {str(path)!r} cannot be made ({error.strerror}).") from None


@dataclass(frozen=True)
class Options:
    """What may stand behind an address: `?key=FILE&weights=int8&keep=fours`."""

    key: bytes | None = None
    weights: str = "float32"  # how a board stores the weights of layers
    keep: str = "segments"  # which of a CFC's activations it keeps


def split_options(address: str) -> tuple[str, Options]:
    """An address without its options, and the options, the key's file read. Others raise BadInput."""
    place, _, query = address.partition("?")
    given = dict(part.partition("=")[::2] for part in query.split("&") if part)
    if other := set(given) - {"key", "weights", "keep"}:
        raise unknown(Code.BOARD_ADDRESS, "board: option", min(other), ("key", "weights", "keep"))
    weights = given.get("weights", "float32")
    if weights not in ("float32", "int8"):
        raise unknown(Code.BOARD_ADDRESS, "board: weights", weights, ("float32", "int8"))
    key = read_key(Path(given["key"])) if "key" in given else None
    return place, Options(key, weights, given.get("keep", "segments"))


@dataclass
class Seal:
    """One conversation with a board that has a key."""

    key: bytes
    host: int
    board: int = 0
    counter: int = 0

    def closed(self, kind: int, seq: int, payload: bytes) -> bytes:
        """The payload of a request with the next counter and its tag."""
        self.counter += 1
        body = payload + struct.pack("<I", self.counter)
        return body + self._tag(FROM_HOST, kind, seq, body)

    def opened(self, kind: int, seq: int, payload: bytes, counter: int) -> bytes | None:
        """What an answer says; None if its tag is wrong or it answers an older request."""
        body, tag = payload[:-TAG], payload[-TAG:]
        if len(payload) < TAIL or not hmac.compare_digest(tag, self._tag(FROM_BOARD, kind, seq, body)):
            return None
        return body[:-4] if struct.unpack("<I", body[-4:])[0] >= counter else None

    def _tag(self, sender: bytes, kind: int, seq: int, body: bytes) -> bytes:
        told = struct.pack("<QQ", self.host, self.board) + sender
        head = bytes([VERSION, kind, seq, len(body) + TAG])
        return hmac.new(self.key, told + head + body, hashlib.sha256).digest()[:TAG]
