"""Frames on a byte stream: COBS( version, kind, seq, length, payload, crc16 ) and a zero.

`firmware/src/frame.c` is the same in C. A zero byte never occurs inside a frame, so a reader that lost bytes finds the
next frame after the next zero.
"""

from __future__ import annotations

import binascii
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from potluck.engines.serial.messages import PAYLOAD, TAIL, VERSION

HEAD = 4
LONGEST = HEAD + PAYLOAD + TAIL + 2


@dataclass(frozen=True)
class Frame:
    kind: int
    seq: int
    payload: bytes


def crc16(data: bytes) -> int:
    """CRC-16/CCITT-FALSE."""
    return binascii.crc_hqx(data, 0xFFFF)


def encode(frame: Frame) -> bytes:
    body = bytes([VERSION, frame.kind, frame.seq, len(frame.payload)]) + frame.payload
    return stuffed(body + struct.pack("<H", crc16(body))) + b"\0"


def stuffed(data: bytes) -> bytes:
    """COBS (Cheshire and Baker, 1999) for fewer than 254 bytes: no zero is left."""
    return b"".join(bytes([len(block) + 1]) + block for block in data.split(b"\0"))


def unstuffed(data: bytes) -> bytes | None:
    """Undo `stuffed`; None for bytes that it cannot have made."""
    blocks, at = [], 0
    while at < len(data):
        end = at + data[at]
        if end > len(data):
            return None
        blocks.append(data[at + 1 : end])
        at = end
    return b"\0".join(blocks)


class Reader:
    """Cuts a stream into frames. Bytes that are no frame are counted and dropped."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self.dropped = 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        *whole, rest = (bytes(self._rest) + data).split(b"\0")
        # Noise without a zero must not pile up: what is longer than a frame is none, whatever follows.
        self._rest = bytearray(rest[: LONGEST + 2])
        for part in whole:
            if part:
                frame = _frame(part)
                if frame is None:
                    self.dropped += 1
                else:
                    yield frame


def _frame(part: bytes) -> Frame | None:
    body = unstuffed(part) if len(part) <= LONGEST + 1 else None
    if body is None or len(body) < HEAD + 2 or body[0] != VERSION or body[3] != len(body) - HEAD - 2:
        return None
    if struct.unpack("<H", body[-2:])[0] != crc16(body[:-2]):
        return None
    return Frame(body[1], body[2], body[HEAD:-2])
