"""Images onto boards: by the drive of a UF2 boot loader, or by the serial boot loader in the ROM of STM32 parts.

UF2 is Microsoft's format: blocks of 512 bytes, each with its address, that a boot loader takes as a file on its drive.
The serial protocol is that of ST's application note AN3155: 8 data bits, even parity, every command acknowledged.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable, Iterator
from functools import reduce
from operator import xor
from pathlib import Path

from potluck.engines.serial.link import Line, open_line, waiting
from potluck.errors import BadInput, Code
from potluck.firmware.boards import Board
from potluck.firmware.elf import flat

UF2_MAGIC = (0x0A324655, 0x9E5D5157, 0x0AB16F30)
UF2_FAMILY = 0x00002000  # flag: the block names its family
UF2_BYTES = 256  # of the image in a block
DRIVE_FILE = "INFO_UF2.TXT"
ACK, NACK = 0x79, 0x1F
SYNC, GET, READ, GO, WRITE, ERASE, EXTENDED_ERASE = 0x7F, 0x00, 0x11, 0x21, 0x31, 0x43, 0x44
MOST = 256  # bytes of one READ or WRITE
ERASING = 60.0  # seconds that a large sector may take, and more


def program_of(elf: bytes, board: Board) -> tuple[int, bytes]:
    """Where the image goes, and its bytes. One that is not for this part raises BadInput."""
    at, data = flat(elf)
    begin, end = board.flash_at + board.loader, board.flash_at + board.code
    if not data or at < begin or at + len(data) > end:
        raise BadInput(
            Code.FLAG_VALUE,
            f"image: must lie at {begin:#x} to {end:#x} for {board.name}, got {at:#x} to {at + len(data):#x}; "
            "build it with --for board.",
        )
    return at, data


def uf2(at: int, data: bytes, family: int) -> bytes:
    """An image as UF2 blocks."""
    if not family:
        raise BadInput(Code.FLAG_VALUE, "image: UF2 must have a family, and this board has none.")
    parts = [data[i : i + UF2_BYTES] for i in range(0, len(data), UF2_BYTES)]
    out = []
    for i, part in enumerate(parts):
        head = (*UF2_MAGIC[:2], UF2_FAMILY, at + i * UF2_BYTES, UF2_BYTES, i, len(parts), family)
        out.append(struct.pack("<8I", *head) + part.ljust(476, b"\0") + struct.pack("<I", UF2_MAGIC[2]))
    return b"".join(out)


def to_drive(data: bytes, board: Board, drive: Path) -> str:
    """Copy an image to the drive of a boot loader. Return what the drive says it is."""
    if not board.uf2:
        raise BadInput(Code.FLAG_VALUE, f"--to: {board.name} must have a boot loader with a drive, and has none.")
    try:
        told = (drive / DRIVE_FILE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        raise BadInput(
            Code.FLAG_VALUE,
            f"--to: must be the drive of a boot loader, with {DRIVE_FILE} on it, got {str(drive)!r}. Press the reset "
            "button twice, or hold BOOTSEL while you plug the board in.",
        ) from None
    lines = dict(line.split(":", 1) for line in told.splitlines() if ":" in line)
    try:
        with (drive / "potluck.uf2").open("wb") as file:
            file.write(data)
            file.flush()
            with contextlib.suppress(OSError):  # the drive may go as soon as it has all
                os.fsync(file.fileno())
    except OSError as error:
        raise BadInput(Code.OUTPUT_PLACE, f"--to: {str(drive)!r} cannot be written ({error.strerror}).") from None
    return lines.get("Model", lines.get("Board-ID", "a boot loader")).strip()


class Stm32Loader:
    """The boot loader in the ROM of an STM32, on a line. What it refuses raises BadInput."""

    def __init__(self, line: Line) -> None:
        self._line, self._had = line, b""
        self._commands: bytes = b""

    def connect(self) -> None:
        """It finds out the line's speed by the first byte. One that is connected already answers NACK."""
        self._line.write(bytes([SYNC]))
        if self._take(1, 2.0)[0] not in (ACK, NACK):
            raise _says("must begin with ACK")
        self._commands = self._block(GET)[1:]

    def erase(self, pages: list[int]) -> None:
        """Erase pages, or sectors, by their numbers."""
        if EXTENDED_ERASE in self._commands:
            self._command(EXTENDED_ERASE)
            body = b"".join(struct.pack(">H", n) for n in (len(pages) - 1, *pages))
        else:
            self._command(ERASE)
            body = bytes([len(pages) - 1, *pages])
        self._line.write(body + bytes([reduce(xor, body)]))
        self._acknowledged("ERASE", ERASING)

    def write(self, at: int, data: bytes) -> None:
        data = data.ljust(-(-len(data) // 4) * 4, b"\xff")
        self._command(WRITE)
        self._address(at)
        body = bytes([len(data) - 1]) + data
        self._line.write(body + bytes([reduce(xor, body)]))
        self._acknowledged("WRITE")

    def read(self, at: int, count: int) -> bytes:
        self._command(READ)
        self._address(at)
        self._line.write(bytes([count - 1, (count - 1) ^ 0xFF]))
        self._acknowledged("READ")
        return self._take(count)

    def go(self, at: int) -> None:
        self._command(GO)
        self._address(at)

    def _block(self, command: int) -> bytes:
        """The answer to a command that tells something: its length less one, the bytes, ACK."""
        self._command(command)
        data = self._take(self._take(1)[0] + 1)
        self._acknowledged("GET")
        return data

    def _command(self, code: int) -> None:
        self._line.write(bytes([code, code ^ 0xFF]))
        self._acknowledged(f"command {code:#04x}")

    def _address(self, at: int) -> None:
        body = struct.pack(">I", at)
        self._line.write(body + bytes([reduce(xor, body)]))
        self._acknowledged(f"address {at:#x}")

    def _acknowledged(self, what: str, seconds: float = 2.0) -> None:
        if self._take(1, seconds)[0] != ACK:
            raise _says(f"must acknowledge {what}; a part with read-out protection does not")

    def _take(self, count: int, seconds: float = 2.0) -> bytes:
        while len(self._had) < count:
            if not waiting(self._line, seconds):
                raise _says("must answer; set BOOT0 high and reset the part")
            self._had += self._line.read()
        taken, self._had = self._had[:count], self._had[count:]
        return taken


def _says(what: str) -> BadInput:
    return BadInput(Code.BOARD_LINE, f"boot loader: {what}.")


def sectors(board: Board, at: int, count: int) -> list[int]:
    """Numbers of the pages that hold these bytes of flash. An STM32F405's first sectors are smaller than its others."""
    sizes = [16, 16, 16, 16, 64, *[128] * 7] if board.port == "stm32f4" else [2] * (board.flash // 2048)
    found, begin = [], board.flash_at
    for number, size in enumerate(sizes):
        if begin < at + count and begin + size * 1024 > at:
            found.append(number)
        begin += size * 1024
    return found


def to_loader(
    elf: bytes, board: Board, address: str, told: Callable[[str], None], opener: Callable[[], Line] | None = None
) -> None:
    """Erase, write, read back and start an image by the serial boot loader at an address."""
    if board.serial != "stm32":
        raise BadInput(Code.FLAG_VALUE, f"--to: {board.name} must have a serial boot loader that is known here.")
    at, data = program_of(elf, board)
    try:
        line = opener() if opener else open_line(address, parity=True)
        try:
            loader = Stm32Loader(line)
            loader.connect()
            pages = sectors(board, at, len(data))
            for first in range(0, len(pages), 64):
                loader.erase(pages[first : first + 64])
            told(f"{len(pages)} pages erased")
            for place, part in _pieces(at, data):
                loader.write(place, part)
            told(f"{len(data):,} bytes written")
            for place, part in _pieces(at, data):
                if loader.read(place, len(part)) != part:
                    raise _says(f"must hold what was written at {place:#x}")
            told("read back and compared")
            loader.go(at)
        finally:
            line.close()
    except OSError as error:  # a line that cannot be opened, or was cut
        raise BadInput(Code.BOARD_LINE, f"boot loader: the line is gone ({error}); flash the image again.") from None


def _pieces(at: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    for i in range(0, len(data), MOST):
        yield at + i, data[i : i + MOST]
