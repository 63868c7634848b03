"""Frames in packets of Bluetooth Low Energy, over a socket that keeps packets apart; some get lost."""

from __future__ import annotations

import random
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.boards import Process, data
from hypothesis import given
from hypothesis import strategies as st

from potluck import methods
from potluck.engines.serial.board import Board
from potluck.engines.serial.link import Line
from potluck.engines.serial.messages import Region, Train
from potluck.engines.serial.packets import FIRST, Assembler, over_socket, packets
from potluck.firmware.client import shelf_of
from potluck.firmware.shape import setup_of, weights_as_stored
from potluck.firmware.toolchain import host_program
from potluck.models import build

MODEL = build("cfc", (12, 3), 4, {"hidden": 5, "backbone": 7, "head": 6})
STORED = weights_as_stored(MODEL.init(0), list(MODEL.init(0)))
SETUP = setup_of(MODEL, methods.load("fedcfc").configure({"recipe.batch": 4}))


class Radio:
    """The client behind a socket of packets, of which the line loses some on the way to it."""

    def __init__(self, flash: Path, mtu: int, keep: Callable[[], bool] = lambda: True) -> None:
        program = host_program("packets", sanitize=True, defines={"PL_ARENA": 30_000, "PL_MTU": mtu})
        self._words, self._mtu, self._keep = [str(program), str(flash)], mtu, keep
        self.lost, self._process = 0, None

    def open(self) -> Line:
        self.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(self._words, stdin=theirs, stdout=theirs)
        line = over_socket(ours, self._mtu)
        send = line._send

        def lossy(packet: bytes) -> None:
            if self._keep():
                send(packet)
            else:
                self.lost += 1

        line._send = lossy
        return line

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def outcome(board: Board) -> bytes:
    board.connect()
    board.install(SETUP, *STORED, shelf_of(MODEL, data(6), None))
    board.train(Train(1, 99, -1.0, 0, 4, 0), b"")
    board.keep(1)
    weights = board.read(Region.WEIGHTS, len(STORED[0]))
    board.close()
    return weights


@pytest.mark.parametrize("mtu", [23, 185, 247])
def test_a_task_over_packets_is_the_task_over_a_stream(tmp_path: Path, mtu: int) -> None:
    stream = Process(tmp_path / "stream")
    expected = outcome(stream.board())
    stream.kill()
    radio = Radio(tmp_path / "flash", mtu)
    assert outcome(Board("radio", radio.open)) == expected
    radio.close()


def test_packets_that_get_lost_are_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gap within a frame drops that frame and no other; the host repeats it. Only TRAIN is not repeated."""
    monkeypatch.setattr("potluck.engines.serial.board.AGAIN", 0.05)
    rng, calm = random.Random(4), []
    radio = Radio(tmp_path / "flash", 64, lambda: bool(calm) or rng.random() > 0.15)
    board = Board("radio", radio.open)
    train = board.train
    monkeypatch.setattr(board, "train", lambda task, cud: (calm.append(1), train(task, cud), calm.pop())[1])
    lossy = outcome(board)
    assert radio.lost >= 5
    radio.close()
    stream = Process(tmp_path / "stream")
    assert lossy == outcome(stream.board())
    stream.kill()


@given(st.lists(st.binary(min_size=1, max_size=250), min_size=1, max_size=6), st.integers(23, 247), st.data())
def test_frames_survive_in_order_or_not_at_all(bodies: list[bytes], mtu: int, drawn: st.DataObject) -> None:
    """Whatever packets are lost: what comes out are whole frames, each as it was sent, in order."""
    frames = [body.replace(b"\0", b"\1") + b"\0" for body in bodies]
    sent = packets(b"".join(frames), mtu, 0)
    assert all(len(packet) <= mtu - 3 for packet in sent)
    assert [packet[0] % FIRST for packet in sent] == [i % FIRST for i in range(len(sent))]
    gone = drawn.draw(st.sets(st.integers(0, len(sent) - 1), max_size=3))
    reader = Assembler()
    stream = b"".join(reader.feed(packet) for i, packet in enumerate(sent) if i not in gone)
    if not gone:
        assert stream == b"".join(frames)
    got = [part + b"\0" for part in stream.split(b"\0")[:-1]]
    at, whole = 0, []
    for frame in frames:  # a frame is whole if all its packets came
        n = -(-len(frame) // (mtu - 4))
        whole += [frame] if not gone & set(range(at, at + n)) else []
        at += n
    rest = iter(got)
    assert all(frame in rest for frame in whole)
