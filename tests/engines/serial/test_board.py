"""A board, asked and answering: the C client as a process under the sanitizers."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.boards import ARENA, Process, data

from potluck import methods
from potluck.engines.serial.board import Board, Refused
from potluck.engines.serial.frames import Frame, Reader, crc16, encode, stuffed
from potluck.engines.serial.link import Gone, Line, Socket, check, open_line
from potluck.engines.serial.messages import (
    ANSWER,
    NO_TASK,
    PAYLOAD,
    VERSION,
    Kind,
    Read,
    Region,
    Setup,
    Train,
    Trouble,
)
from potluck.engines.serial.shelf import Shelf
from potluck.errors import BadInput
from potluck.firmware.client import shelf_of
from potluck.firmware.shape import setup_of, weights_as_stored
from potluck.firmware.toolchain import host_program
from potluck.methods import fedcfc
from potluck.models import build

MODEL = build("cfc", (12, 3), 4, {"hidden": 5, "backbone": 7, "head": 6})
WEIGHTS = MODEL.init(0)
VECTOR = 5 * 6
TASK = Train(task=4, key=99, cum=-1.0, crc=0, batch=4, aimed=0)


def setup() -> Setup:
    return setup_of(MODEL, methods.load("fedcfc").configure({"recipe.batch": 4}))


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    one = Process(tmp_path / "flash", sanitize=True)
    yield one
    one.kill()


def placed(process: Process) -> Board:
    board = process.board()
    board.connect()
    shelf = shelf_of(MODEL, data(6), data(3, seed=1))
    board.install(setup(), *weights_as_stored(WEIGHTS, list(WEIGHTS)), shelf)
    return board


def test_an_empty_board_says_so(process: Process) -> None:
    hello = process.board().connect()
    assert (hello.ready, hello.trained, hello.kept, hello.board) == (0, NO_TASK, NO_TASK, "posix")
    assert hello.arena == ARENA


def test_what_is_installed_can_be_read(process: Process) -> None:
    board = placed(process)
    stored, _ = weights_as_stored(WEIGHTS, list(WEIGHTS))
    assert board.read(Region.WEIGHTS, len(stored)) == stored
    hello = board.connect()
    assert (hello.ready, hello.train, hello.valid) == (1, 6, 3)
    assert 0 <= board.infer(0).label < 4


def test_a_task_asked_again_is_not_done_again(process: Process) -> None:
    board = placed(process)
    first = board.train(TASK, b"")
    lud, weights = board.read(Region.LUD, 4 * VECTOR), board.read(Region.WEIGHTS, 4 * VECTOR)
    again = board.train(TASK, b"")
    assert again == first
    assert board.read(Region.LUD, 4 * VECTOR) == lud
    assert board.read(Region.WEIGHTS, 4 * VECTOR) == weights


def test_what_was_not_kept_was_not_done(process: Process) -> None:
    """A second task without KEEP starts from the kept weights, as the first one did."""
    board = placed(process)
    board.train(TASK, b"")
    once = board.read(Region.WEIGHTS, 4 * VECTOR)
    board.train(Train(5, TASK.key, TASK.cum, 0, TASK.batch, 0), b"")
    assert board.read(Region.WEIGHTS, 4 * VECTOR) == once
    board.keep(5)
    board.train(Train(6, TASK.key, TASK.cum, 0, TASK.batch, 0), b"")
    assert board.read(Region.WEIGHTS, 4 * VECTOR) != once


def test_an_old_task_is_refused(process: Process) -> None:
    board = placed(process)
    board.train(TASK, b"")
    board.keep(4)
    with pytest.raises(Refused, match="STALE_TASK"):
        board.train(Train(3, TASK.key, TASK.cum, 0, TASK.batch, 0), b"")
    with pytest.raises(Refused, match="STALE_TASK"):
        board.keep(9)
    board.keep(4)  # said twice: nothing more happens


def test_kept_weights_survive_a_power_cut(process: Process) -> None:
    board = placed(process)
    board.train(TASK, b"")
    board.keep(4)
    weights = board.read(Region.WEIGHTS, 4 * VECTOR)
    board.train(Train(5, 1, -1.0, 0, 4, 0), b"")
    board.close()
    process.kill()  # while what task 5 left is in memory only
    back = process.board()
    hello = back.connect()
    assert (hello.ready, hello.kept, hello.trained) == (1, 4, 4)
    assert back.read(Region.WEIGHTS, 4 * VECTOR) == weights


PAGE = 4096  # a slot of this network is one page: 128 bytes of header, then the weights


@pytest.mark.parametrize(
    ("torn", "kept"), [(2 * PAGE + 20, NO_TASK), (2 * PAGE + 200, NO_TASK), (2 * PAGE - 4, 4), (3 * PAGE - 4, 4)]
)
def test_a_torn_slot_leaves_the_other(process: Process, tmp_path: Path, torn: int, kept: int) -> None:
    """The newest slot is damaged in its header or its weights: the one before it counts. Elsewhere nothing depends."""
    board = placed(process)  # in slot 1
    board.train(TASK, b"")
    board.keep(4)  # in slot 2
    process.kill()
    flash = bytearray((tmp_path / "flash").read_bytes())
    flash[torn] ^= 0xFF
    (tmp_path / "flash").write_bytes(flash)
    hello = process.board().connect()
    assert (hello.ready, hello.kept) == (1, kept)


def test_an_aim_that_was_not_heard_is_not_followed(process: Process) -> None:
    board = placed(process)
    cud = np.ones(VECTOR, "<f4").tobytes()
    with pytest.raises(Refused, match="OTHER_CUD"):
        board.train(Train(4, 1, 0.1, zlib.crc32(cud) ^ 1, 4, 1), cud)
    assert board.train(Train(4, 1, 0.1, zlib.crc32(cud), 4, 1), cud).task == 4


@pytest.mark.parametrize(
    ("region", "offset", "length", "more"),
    [
        (Region.WEIGHTS, 1 << 20, 4, 0),
        (Region.WEIGHTS, 0, 4, 255),
        (Region.LUD, 0, 4, 0),
        (Region.SHELF, 0, 4, 0),
        (9, 0, 4, 0),
        (Region.WEIGHTS, 0xFFFFFFFF, 8, 0),
    ],
)
def test_what_is_not_there_cannot_be_read(process: Process, region: int, offset: int, length: int, more: int) -> None:
    board = placed(process)
    with pytest.raises(Refused):
        board._exchange(Kind.READ, Read(region, offset, length, more).pack())


class Losing:
    """A line that loses some of the answers to READ."""

    def __init__(self, line: Line, lost: set[int]) -> None:
        self._line, self._lost = line, lost
        self._reader, self._count = Reader(), 0
        self.fileno, self.write, self.close = line.fileno, line.write, line.close

    def read(self) -> bytes:
        kept = b""
        for frame in self._reader.feed(self._line.read()):
            self._count += frame.kind == Kind.READ | ANSWER
            if frame.kind != Kind.READ | ANSWER or self._count not in self._lost:
                kept += encode(frame)
        return kept


@pytest.mark.parametrize("lost", [set(), {1}, {3}, {2, 3, 5}])
@pytest.mark.parametrize("key", [None, bytes(range(32))])
def test_pieces_that_got_lost_are_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: set[int], key: bytes | None
) -> None:
    """One READ is answered by many pieces; those behind a gap are not taken for others."""
    monkeypatch.setattr("potluck.engines.serial.board.AGAIN", 0.2)
    process = Process(tmp_path / "flash", sanitize=True, key=key)
    board = Board("test", lambda: Losing(process.open(), lost), 10.0, key)
    board.connect()
    numbers = np.arange(sum(value.numel() for value in WEIGHTS.values()), dtype="<f4").tobytes()
    board.place(setup(), shelf_of(MODEL, data(6), None))
    board.write(Region.WEIGHTS, numbers)
    before = board.sent
    assert board.read(Region.WEIGHTS, len(numbers)) == numbers
    assert len(numbers) > 5 * PAYLOAD
    assert board.sent - before <= 40 * (1 + len(lost))
    assert board.read(Region.WEIGHTS, 12, 8) == numbers[8:20]
    process.kill()


def test_a_refused_setup_leaves_nothing_set_up(process: Process) -> None:
    board = placed(process)
    too_large = build("cfc", (12, 3), 4, {"hidden": 200, "backbone": 200, "head": 200})
    with pytest.raises(Refused, match="NO_ROOM") as refused:
        board._exchange(Kind.SETUP, setup_of(too_large, fedcfc.Config()).pack())
    assert refused.value.trouble == Trouble.NO_ROOM
    with pytest.raises(Refused, match="NOT_READY"):
        board.train(TASK, b"")


def test_samples_that_cannot_be_are_refused(process: Process) -> None:
    """A label beyond the classes would write beyond the logits."""
    board = process.board()
    board.connect()
    shelf = shelf_of(MODEL, data(2), None)
    size = len(shelf.data) // 2
    one = shelf.data[:2] + b"\x09\0" + shelf.data[8:size]
    one = one[:4] + zlib.crc32(one).to_bytes(4, "little") + one[4:]
    wrong = Shelf(one + shelf.data[size:], 2, 0)
    with pytest.raises(Refused, match="BAD_SHELF"):
        board.install(setup(), *weights_as_stored(WEIGHTS, list(WEIGHTS)), wrong)


def test_another_version_is_told(process: Process) -> None:
    board = process.board()
    board.connect()
    body = bytes([VERSION + 1, Kind.HELLO, 9, 0])
    line = board._line
    assert line is not None
    line.write(stuffed(body + crc16(body).to_bytes(2, "little")) + b"\0")
    (answer,) = list(Reader().feed(line.read()))
    assert answer == Frame(Kind.ERROR, 9, bytes([Trouble.OTHER_VERSION]))


def test_a_lost_question_is_asked_again(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first HELLO is spoilt on its way; the second is answered."""
    monkeypatch.setattr("potluck.engines.serial.board.AGAIN", 0.1)
    board = process.board()
    put, spoilt = Board._put, []

    def lossy(self: Board, question: bytes) -> None:
        if len(question) > 1 and not spoilt:
            spoilt.append(question)
            question = question[:3] + b"\x55" + question[4:]
        put(self, question)

    monkeypatch.setattr(Board, "_put", lossy)
    assert board.connect().version == VERSION
    assert len(spoilt) == 1
    assert board.stats().dropped == 1


def test_a_silent_board_is_gone() -> None:
    ours, theirs = socket.socketpair()
    board = Board("mute", lambda: Socket(ours), silence=0.2)
    with theirs, pytest.raises(Gone, match="no answer to HELLO"):
        board.connect()
    assert not board.talking


def test_nobody_there_is_gone() -> None:
    with pytest.raises(Gone, match="cannot be reached"):
        open_line("unix:/nowhere/at/all")
    with pytest.raises(Gone):
        open_line("serial:/nowhere/at/all@9600")


@pytest.mark.parametrize(
    "wrong", ["", "tcp:host", "tcp:host:0", "tcp:host:99999", "serial:", "ftp:x", "serial:/dev/x@fast"]
)
def test_an_address_that_is_none(wrong: str) -> None:
    with pytest.raises(BadInput, match="an address must be tcp:HOST:PORT, unix:PATH or serial:DEVICE@BAUD, got"):
        check(wrong)


def test_a_serial_port(tmp_path: Path) -> None:
    """The same client behind a real terminal device: raw mode, no echo, every byte value."""
    ours, theirs = os.openpty()
    name = os.ttyname(theirs)
    program = host_program("posix", sanitize=True, defines={"PL_ARENA": ARENA})
    line = open_line(f"serial:{name}@115200")
    child = subprocess.Popen([str(program), str(tmp_path / "flash")], stdin=ours, stdout=ours)
    try:
        board = Board("pty", lambda: line)
        board.connect()
        board.install(setup(), *weights_as_stored(WEIGHTS, list(WEIGHTS)), shelf_of(MODEL, data(2), None))
        assert board.train(TASK, b"").steps == 1
    finally:
        child.kill()
        child.wait()
        os.close(ours)
        os.close(theirs)
        line.close()


def test_answers_of_an_earlier_question_are_passed_over() -> None:
    """A late answer carries an old number."""
    ours, theirs = socket.socketpair()

    def other_end() -> None:
        reader, seen = Reader(), 0
        while not seen:
            for frame in reader.feed(theirs.recv(100)):
                seen += 1
                theirs.sendall(encode(Frame(Kind.KEEP | 0x80, (frame.seq + 255) % 256, b"\x09\0\0\0")))
                theirs.sendall(encode(Frame(Kind.KEEP | 0x80, frame.seq, b"\x02\0\0\0")))

    thread = threading.Thread(target=other_end)
    thread.start()
    board = Board("late", lambda: Socket(ours), silence=5.0)
    board._line = Socket(ours)
    assert board._exchange(Kind.KEEP, b"\x02\0\0\0") == b"\x02\0\0\0"
    thread.join()
    theirs.close()
    ours.close()


def test_a_training_can_be_stopped_and_leaves_no_trace(process: Process) -> None:
    """ABORT is heard while the board trains; to all else it is busy. The next task begins as this one did."""
    board = placed(process)
    before = board.read(Region.WEIGHTS, 4 * VECTOR)
    board.install(
        replace(setup(), epochs=16), *weights_as_stored(WEIGHTS, list(WEIGHTS)), shelf_of(MODEL, data(90), None)
    )
    line = board._line
    assert line is not None
    line.write(encode(Frame(Kind.TRAIN, 201, TASK.pack())) + encode(Frame(Kind.READ, 202, Read(0, 0, 4).pack())))
    line.write(encode(Frame(Kind.STATS, 203, b"")) + encode(Frame(Kind.ABORT, 204, b"")))
    reader, heard = Reader(), {}
    while 201 not in heard:
        heard |= {frame.seq: frame for frame in reader.feed(line.read()) if frame.kind != Kind.PROGRESS}
    assert heard[202] == Frame(Kind.ERROR, 202, bytes([Trouble.BUSY]))
    assert heard[203].kind == Kind.STATS | 0x80
    assert heard[204].kind == Kind.ABORT | 0x80
    assert heard[201] == Frame(Kind.ERROR, 201, bytes([Trouble.STOPPED]))
    board.install(setup(), *weights_as_stored(WEIGHTS, list(WEIGHTS)), shelf_of(MODEL, data(6), None))
    assert board.read(Region.WEIGHTS, 4 * VECTOR) == before
    assert board.train(TASK, b"").steps == 2
    board.abort()  # nothing under way: nothing to do
