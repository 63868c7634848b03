"""What an ELF image puts where, and the checksum that an RP2040 asks of its first 256 bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from potluck.errors import BadInput, Code

LOAD = 1  # type of a segment that is loaded
BOOT2 = 252  # bytes of the RP2040's second stage, before its checksum


@dataclass(frozen=True)
class Segment:
    at: int  # address in flash
    data: bytes
    offset: int  # in the file


def segments(elf: bytes) -> list[Segment]:
    """The parts of a 32-bit little-endian ELF file that go to flash, by address. Anything else raises BadInput."""
    if elf[:6] != b"\x7fELF\x01\x01" or len(elf) < 52:
        raise BadInput(Code.FLAG_VALUE, "image: must be a 32-bit little-endian ELF file.")
    first, size, count = struct.unpack_from("<I", elf, 28)[0], *struct.unpack_from("<HH", elf, 42)
    found = []
    for i in range(count):
        if size < 32 or first + (i + 1) * size > len(elf):
            raise BadInput(Code.FLAG_VALUE, "image: must be a whole ELF file, got one that ends too early.")
        kind, offset, _, place, length = struct.unpack_from("<5I", elf, first + i * size)
        if kind == LOAD and length:
            if offset + length > len(elf):
                raise BadInput(Code.FLAG_VALUE, "image: must be a whole ELF file, got one that ends too early.")
            found.append(Segment(place, elf[offset : offset + length], offset))
    return sorted(found, key=lambda segment: segment.at)


def flat(elf: bytes) -> tuple[int, bytes]:
    """The image from its first to its last byte in flash, gaps filled with ones; and where it begins."""
    parts = segments(elf)
    begin, out = (parts[0].at if parts else 0), bytearray()
    for part in parts:
        if part.at < begin + len(out) or part.at - begin > 1 << 24:
            raise BadInput(Code.FLAG_VALUE, "image: must have parts that lie apart, within 16 MB.")
        out += b"\xff" * (part.at - begin - len(out)) + part.data
    return begin, bytes(out)


def with_boot_checksum(elf: bytes) -> bytes:
    """The second stage with its checksum: CRC-32 with 0x04c11db7 from ones, neither reflected nor inverted."""
    offset = segments(elf)[0].offset
    crc = 0xFFFFFFFF
    for byte in elf[offset : offset + BOOT2]:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1 ^ (0x04C11DB7 if crc & 0x80000000 else 0)) & 0xFFFFFFFF
    return elf[: offset + BOOT2] + struct.pack("<I", crc) + elf[offset + BOOT2 + 4 :]
