"""Frames with a key: who does not have it is not heard, and nothing recorded can be sent again."""

from __future__ import annotations

import hashlib
import hmac
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.boards import Process, data, emulation

from potluck import methods
from potluck.engines.serial.board import Board, Refused
from potluck.engines.serial.frames import Frame, Reader, encode
from potluck.engines.serial.link import Line
from potluck.engines.serial.messages import ANSWER, TAIL, Greet, Hello, Keep, Kind, Train, Trouble
from potluck.engines.serial.seal import read_key, split_options, write_key
from potluck.errors import BadInput
from potluck.firmware.boards import BOARDS
from potluck.firmware.client import shelf_of
from potluck.firmware.emulator import Emulator
from potluck.firmware.image import build, write_image
from potluck.firmware.shape import setup_of, weights_as_stored
from potluck.firmware.toolchain import host_compiler, sources
from potluck.models import build as model_of

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))
MODEL = model_of("cfc", (12, 3), 4, {"hidden": 5, "backbone": 7, "head": 6})
STORED = weights_as_stored(MODEL.init(0), list(MODEL.init(0)))
SETUP = setup_of(MODEL, methods.load("fedcfc").configure({"recipe.batch": 4}))


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    one = Process(tmp_path / "flash", sanitize=True, key=KEY)
    yield one
    one.kill()


def trained(board: Board, task: int = 1) -> None:
    board.connect()
    board.install(SETUP, *STORED, shelf_of(MODEL, data(6), None))
    board.train(Train(task, 99, -1.0, 0, 4, 0), b"")
    board.keep(task)


class Tap:
    """A line that keeps what the host wrote, and may change what it reads."""

    def __init__(self, line: Line) -> None:
        self._line, self.written, self.spoil = line, b"", b""

    def fileno(self) -> int:
        return self._line.fileno()

    def read(self) -> bytes:
        return self.spoil + self._line.read()

    def write(self, some: bytes) -> None:
        self.written += some
        self._line.write(some)

    def close(self) -> None:
        self._line.close()


def test_a_board_with_a_key_works_for_its_holder(process: Process) -> None:
    board = process.board()
    trained(board)
    assert board.connect().kept == 1
    assert board.connect().locked == 1
    assert board.forged == 0


def test_nobody_else_is_heard(process: Process) -> None:
    with pytest.raises(BadInput, match="must be given its key"):
        Board("test", process.open).connect()
    with pytest.raises(BadInput, match="must have the key that was given, got another one"):
        Board("test", process.open, key=OTHER).connect()
    board = process.board()
    board.connect()
    board._seal = None  # frames without a tag, from somebody on the same line
    for kind, payload in ((Kind.STATS, b""), (Kind.SETUP, SETUP.pack()), (Kind.KEEP, Keep(1).pack())):
        with pytest.raises(Refused) as refused:
            board._exchange(kind, payload)
        assert refused.value.trouble == Trouble.NO_TAG


def test_a_board_without_the_key_is_not_trusted(tmp_path: Path) -> None:
    open_board = Process(tmp_path / "flash")
    with pytest.raises(BadInput, match="got a board without one"):
        Board("test", open_board.open, key=KEY).connect()
    open_board.kill()


def test_what_was_recorded_cannot_be_sent_again(process: Process, tmp_path: Path) -> None:
    """Within the conversation a frame may come again, but no older one; after a HELLO none of them counts."""
    taps: list[Tap] = []
    board = Board("test", lambda: taps.append(Tap(process.open())) or taps[-1], key=KEY)
    trained(board)
    stats = board.stats()
    recorded = [frame for frame in Reader().feed(taps[0].written) if frame.kind == Kind.KEEP]
    board._put(encode(recorded[0]))  # older than the last: refused, so the board answers it and stores nothing
    after = board.stats()
    assert after.stores == stats.stores
    assert after.answered == stats.answered + 2
    board.connect()
    before = board.stats().stores
    for frame in recorded:
        board._put(encode(frame))
    assert board.stats().stores == before


def test_a_forged_answer_is_ignored(process: Process) -> None:
    taps: list[Tap] = []
    board = Board("test", lambda: taps.append(Tap(process.open())) or taps[-1], silence=2.0, key=KEY)
    board.connect()
    forged = Frame(Kind.STATS | ANSWER, (board._seq + 1) % 256, bytes(24) + bytes(12))
    taps[0].spoil = encode(forged)
    assert board.stats().answered > 0  # the true one
    assert board.forged == 1


def test_repeats_belong_to_the_same_conversation(process: Process) -> None:
    """A HELLO whose answer was lost comes again with the same number: the board keeps its own."""
    board = process.board()
    board.connect()
    board._seal = None
    nonces = [Hello.unpack(board._exchange(Kind.HELLO, Greet(n).pack())[:-TAIL]).nonce for n in (5, 5, 6)]
    assert nonces[0] == nonces[1] != nonces[2]


def test_numbers_differ_from_start_to_start(process: Process) -> None:
    seen = set()
    for _ in range(4):
        seen.add(process.board().connect().nonce)
        process.kill()
    assert len(seen) == 4


def test_keys_are_files_of_their_owner(tmp_path: Path) -> None:
    path = tmp_path / "board.key"
    write_key(path)
    assert path.stat().st_mode & 0o077 == 0
    assert len(read_key(path)) == 32
    with pytest.raises(BadInput, match="cannot be made"):
        write_key(path)
    place, options = split_options(f"serial:/dev/ttyACM0@115200?key={path}&weights=int8")
    assert (place, options.key, options.weights) == ("serial:/dev/ttyACM0@115200", read_key(path), "int8")
    path.write_text("ff" * 32)
    with pytest.raises(BadInput, match="64 hexadecimal digits"):
        read_key(path)
    with pytest.raises(BadInput, match="board: option"):
        split_options("tcp:127.0.0.1:1?speed=9")
    with pytest.raises(BadInput, match="cannot be read"):
        split_options(f"tcp:127.0.0.1:1?key={tmp_path / 'none'}")


PROGRAM = """
#include "pl_lock.h"
#include <stdio.h>
int main(void)
{
    static uint8_t all[4096];
    uint8_t digest[PL_DIGEST];
    size_t n = fread(all, 1, sizeof all, stdin), cut = (n - 32) / 3;
    pl_hmac(all, all + 32, cut, all + 32 + cut, n - 32 - cut, digest);
    fwrite(digest, 1, sizeof digest, stdout);
    return 0;
}
"""


def test_hmac_is_the_standard_one(tmp_path: Path) -> None:
    """Against Python's own, for every length around the ends of blocks."""
    (tmp_path / "hmac.c").write_text(PROGRAM)
    words = [
        host_compiler(),
        "-std=c11",
        f"-I{sources() / 'src'}",
        "hmac.c",
        str(sources() / "src" / "lock.c"),
        "-o",
        "h",
    ]
    subprocess.run(words, cwd=tmp_path, check=True)
    for n in [*range(70), 119, 120, 121, 127, 128, 129, 1000]:
        key, text = os.urandom(32), os.urandom(n)
        ours = subprocess.run([tmp_path / "h"], input=key + text, capture_output=True, check=True).stdout
        assert ours == hmac.new(key, text, hashlib.sha256).digest(), n


@pytest.mark.skipif(emulation() is not None, reason=str(emulation()))
def test_an_image_with_a_key_on_an_emulated_board(tmp_path: Path) -> None:
    write_key(tmp_path / "key")
    image = build(BOARDS["nrf52832"], 30_000)
    write_image(image, tmp_path / "image.elf", read_key(tmp_path / "key"))
    assert (tmp_path / "image.elf").stat().st_mode & 0o077 == 0
    with Emulator(tmp_path / "image.elf", f"unix:{tmp_path / 'line'}", tmp_path / "flash") as emulator:
        board = Board("emulated", f"{emulator.address}?key={tmp_path / 'key'}", silence=30.0)
        trained(board)
        stats = board.stats()
        board.close()
    assert stats.stack < 2048
    with Emulator(image.elf, f"unix:{tmp_path / 'line2'}", tmp_path / "flash2") as emulator:
        board = Board("open", emulator.address, silence=30.0)
        assert board.connect().locked == 0
        board.close()
