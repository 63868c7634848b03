"""Images onto boards: a drive that takes UF2 files, and an STM32's boot loader, both played by the test."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from functools import reduce
from operator import xor
from pathlib import Path

import pytest
from helpers.boards import emulation
from typer.testing import CliRunner

from potluck.cli import app
from potluck.engines.serial.link import Socket
from potluck.errors import BadInput
from potluck.firmware.boards import BOARDS
from potluck.firmware.elf import BOOT2, flat, segments
from potluck.firmware.flashing import ACK, NACK, Stm32Loader, sectors, to_loader
from potluck.firmware.image import build, write_image

MISSING = emulation()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
PAGE = 2048


class Rom:
    """AN3155's boot loader of an STM32F303: flash in pages of 2 kB that is erased first and programmed once."""

    def __init__(self, line: socket.socket, protected: bool = False, worn: int = -1, writes: int = -1) -> None:
        self.flash = bytearray(b"\0" * (512 * 1024))
        self.started = 0
        self._line, self._protected, self._worn = line, protected, worn
        self._writes = writes  # after so many the power goes
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _take(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._line.recv(count - len(data))
            if not more:
                raise ConnectionError
            data += more
        return data

    def _say(self, *data: int) -> None:
        self._line.sendall(bytes(data))

    def _sound(self, body: bytes) -> bool:
        good = reduce(xor, body) == self._take(1)[0]
        self._say(ACK if good else NACK)
        return good

    def _address(self) -> int:
        body = self._take(4)
        assert self._sound(body)
        return int(struct.unpack(">I", body)[0]) - 0x08000000

    def _serve(self) -> None:
        try:
            assert self._take(1) == b"\x7f"
            self._say(ACK)
            while True:
                self._carry_out(*self._take(2))
        except (ConnectionError, OSError):
            return

    def _carry_out(self, code: int, complement: int) -> None:
        known = code ^ complement == 0xFF
        self._say(ACK if known and not (self._protected and code != 0) else NACK)
        if not known or (self._protected and code != 0):
            return
        if code == 0x00:
            self._say(5, 0x31, 0x00, 0x11, 0x21, 0x31, 0x44, ACK)
        elif code == 0x44:
            first = self._take(2)
            numbers = self._take(2 * (struct.unpack(">H", first)[0] + 1))
            for page in struct.unpack(f">{len(numbers) // 2}H", numbers):
                self.flash[page * PAGE : (page + 1) * PAGE] = b"\xff" * PAGE
            assert self._sound(first + numbers)
        elif code == 0x31:
            if self._writes == 0:
                self._line.shutdown(socket.SHUT_RDWR)
                raise ConnectionError
            self._writes -= 1
            at, first = self._address(), self._take(1)
            data = self._take(first[0] + 1)
            assert self.flash[at : at + len(data)] == b"\xff" * len(data), "programmed without an erasure"
            self.flash[at : at + len(data)] = data
            if self._worn in range(at, at + len(data)):
                self.flash[self._worn] ^= 1
            assert self._sound(first + data)
        elif code == 0x11:
            at, count = self._address(), self._take(1)
            assert self._sound(bytes([count[0] ^ 0xFF]))
            self._say(*self.flash[at : at + count[0] + 1])
        else:
            self.started = self._address() + 0x08000000


@pytest.fixture
def lines() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def image(name: str, tmp_path: Path) -> bytes:
    write_image(build(BOARDS[name], 6000, target="board"), tmp_path / "image.elf")
    return (tmp_path / "image.elf").read_bytes()


def test_an_image_is_written_and_started_by_an_stm32_s_boot_loader(
    tmp_path: Path, lines: tuple[socket.socket, socket.socket]
) -> None:
    rom, elf, said = Rom(lines[1]), image("stm32f303", tmp_path), []
    rom.flash[128 * 1024] = 0x55  # weights and samples behind the program
    to_loader(elf, BOARDS["stm32f303"], "", said.append, lambda: Socket(lines[0]))
    rom.thread.join(10)
    at, data = flat(elf)
    assert (at, rom.started) == (0x08000000, 0x08000000)
    assert rom.flash[: len(data)] == data
    assert rom.flash[128 * 1024] == 0x55
    assert said[-1] == "read back and compared"


def test_what_did_not_arrive_is_seen(tmp_path: Path, lines: tuple[socket.socket, socket.socket]) -> None:
    Rom(lines[1], worn=5000)
    with pytest.raises(BadInput, match="must hold what was written at 0x8001300"):
        to_loader(image("stm32f303", tmp_path), BOARDS["stm32f303"], "", lambda _: None, lambda: Socket(lines[0]))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_an_update_that_was_cut_is_done_again(tmp_path: Path, share: float) -> None:
    """The boot loader is in ROM and the data lie elsewhere: half an image costs a second try, and nothing else."""
    elf, data = image("stm32f303", tmp_path), 128 * 1024
    flash, left = bytearray(b"\x5a" * (512 * 1024)), int(share * len(flat(elf)[1]) / 256)
    ours, theirs = socket.socketpair()
    first = Rom(theirs, writes=left)
    first.flash = flash
    with pytest.raises(BadInput, match="boot loader"):
        to_loader(elf, BOARDS["stm32f303"], "", lambda _: None, lambda: Socket(ours))
    first.thread.join(10)
    theirs.close()
    ours, theirs = socket.socketpair()
    again = Rom(theirs)
    again.flash = flash
    to_loader(elf, BOARDS["stm32f303"], "", lambda _: None, lambda: Socket(ours))
    again.thread.join(10)
    theirs.close()
    at, whole = flat(elf)
    assert again.started == at
    assert flash[: len(whole)] == whole
    assert flash[data:] == b"\x5a" * (len(flash) - data)


def test_a_protected_part_says_no(lines: tuple[socket.socket, socket.socket]) -> None:
    Rom(lines[1], protected=True)
    loader = Stm32Loader(Socket(lines[0]))
    loader.connect()
    with pytest.raises(BadInput, match="read-out protection"):
        loader.read(0x08000000, 4)


def test_sectors_of_an_stm32f405() -> None:
    assert sectors(BOARDS["stm32f405"], 0x08000000, 20_000) == [0, 1]
    assert sectors(BOARDS["stm32f405"], 0x08000000, 128 * 1024) == [0, 1, 2, 3, 4]
    assert sectors(BOARDS["stm32f303"], 0x08000000, 4097) == [0, 1, 2]


def test_a_drive_takes_uf2(tmp_path: Path) -> None:
    elf = image("pico", tmp_path)
    drive = tmp_path / "RPI-RP2"
    drive.mkdir()
    words = ["firmware", "flash", str(tmp_path / "image.elf"), "--board", "pico", "--to", str(drive)]
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 2
    assert "must be the drive of a boot loader" in refused.output
    (drive / "INFO_UF2.TXT").write_text("UF2 Bootloader v3.0\nModel: Raspberry Pi RP2\nBoard-ID: RPI-RP2\n")
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "copied to Raspberry Pi RP2" in done.output
    written = (drive / "potluck.uf2").read_bytes()
    at, data = flat(elf)
    blocks = [written[i : i + 512] for i in range(0, len(written), 512)]
    whole = b""
    for i, block in enumerate(blocks):
        magic, second, flags, place, count, number, total, family = struct.unpack_from("<8I", block)
        assert (magic, second, block[508:]) == (0x0A324655, 0x9E5D5157, b"\x30\x6f\xb1\x0a")
        assert (flags, place, count, number, total, family) == (0x2000, at + 256 * i, 256, i, len(blocks), 0xE48BFF56)
        whole += block[32 : 32 + count]
    assert whole[: len(data)] == data


def test_an_rp2040_accepts_its_first_256_bytes(tmp_path: Path) -> None:
    """The ROM's checksum: 0 over the 252 bytes and the checksum behind them, as for every CRC of this kind."""
    first = segments(image("pico", tmp_path))[0]
    assert first.at == 0x10000000
    crc = 0xFFFFFFFF
    for byte in first.data[:BOOT2] + first.data[BOOT2 : BOOT2 + 4][::-1]:
        crc ^= byte << 24
        for _ in range(8):
            crc = ((crc << 1) ^ 0x04C11DB7 if crc & 0x80000000 else crc << 1) & 0xFFFFFFFF
    assert crc == 0
    stack, reset = struct.unpack_from("<II", first.data, 0x400)  # the vectors that it jumps through
    assert (stack, reset & 1) == (0x20042000, 1)


def test_images_of_other_parts_are_refused(tmp_path: Path) -> None:
    elf = image("stm32f303", tmp_path)
    for words, why in (
        (["--board", "pico", "--to", str(tmp_path)], "must lie at 0x10000000"),
        (["--board", "stm32f303", "--to", str(tmp_path)], "UF2 must have a family"),
        (["--board", "nano33", "--to", "serial:/dev/none"], "must have a serial boot loader"),
    ):
        done = CliRunner().invoke(app, ["firmware", "flash", str(tmp_path / "image.elf"), *words])
        assert done.exit_code == 2, done.output
        assert why in done.output.replace("\n", " ")
    emulated = build(BOARDS["stm32f303"], 6000)
    with pytest.raises(BadInput, match="build it with --for board"):
        to_loader(emulated.elf.read_bytes(), BOARDS["stm32f303"], "", lambda _: None)
    with pytest.raises(BadInput, match="must be a 32-bit"):
        flat(b"MZ" + elf[2:])
    with pytest.raises(BadInput, match="ends too early"):
        flat(elf[: len(elf) // 8])
