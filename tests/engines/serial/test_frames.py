"""Frames and records: what is sent arrives, what is spoilt is dropped, and the C header says the same."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.engines.serial import header
from potluck.engines.serial.frames import Frame, Reader, crc16, encode, stuffed, unstuffed
from potluck.engines.serial.messages import ANSWER, MESSAGES, PAYLOAD, Kind, Message, form, layout
from potluck.errors import BadInput

payloads = st.binary(max_size=PAYLOAD)


@given(st.integers(0, 255), st.integers(0, 255), payloads)
def test_a_frame_survives_the_line(kind: int, seq: int, payload: bytes) -> None:
    sent = encode(Frame(kind, seq, payload))
    assert sent.index(0) == len(sent) - 1
    assert list(Reader().feed(sent)) == [Frame(kind, seq, payload)]


@given(st.binary(max_size=253))
def test_stuffing_leaves_no_zero_and_can_be_undone(data: bytes) -> None:
    assert 0 not in stuffed(data)
    assert unstuffed(stuffed(data)) == data


def test_crc_of_the_standard_text() -> None:
    """CRC-16/CCITT-FALSE of "123456789" is 0x29B1."""
    assert crc16(b"123456789") == 0x29B1


@given(st.binary(max_size=600), payloads, st.integers(1, 40))
def test_a_reader_finds_its_place_again(noise: bytes, payload: bytes, piece: int) -> None:
    """After any noise and a zero, a frame is read, in whatever pieces it comes."""
    frame = Frame(Kind.WRITE, 7, payload)
    stream = noise + b"\0" + encode(frame)
    reader = Reader()
    found = [one for at in range(0, len(stream), piece) for one in reader.feed(stream[at : at + piece])]
    assert found[-1:] == [frame]


@given(payloads, st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_byte_is_seen(payload: bytes, at: int, by: int) -> None:
    sent = bytearray(encode(Frame(Kind.READ, 3, payload)))
    sent[at % (len(sent) - 1)] ^= by
    reader = Reader()
    assert Frame(Kind.READ, 3, payload) not in list(reader.feed(bytes(sent) + b"\0"))


def test_noise_does_not_pile_up() -> None:
    reader = Reader()
    for _ in range(1000):
        assert list(reader.feed(b"\x55" * 1000)) == []
    assert len(reader._rest) < 300


def example(kind: type[Message]) -> Message:
    values: list[Any] = []
    for i, (_, code) in enumerate(layout(kind)):
        values.append("board" if code.endswith("s") else 0.5 * i if code == "f" else i + 1)
    return kind(*values)


@pytest.mark.parametrize("kind", MESSAGES)
def test_a_record_survives(kind: type[Message]) -> None:
    one = example(kind)
    assert kind.unpack(one.pack()) == one
    assert len(one.pack()) == struct.calcsize(form(kind)) <= PAYLOAD
    with pytest.raises(BadInput, match=r"must have \d+ bytes, got"):
        kind.unpack(one.pack() + b"x")


def test_kinds_and_answers_pair_up() -> None:
    asked = {kind for kind in Kind if kind < ANSWER}
    for kind in MESSAGES:
        assert kind.KIND in asked or kind.KIND & ~ANSWER in asked or kind.KIND in (Kind.PROGRESS, Kind.ERROR)


def test_the_headers_are_those_these_classes_make() -> None:
    for name, text in header.headers().items():
        made = (header.WHERE / name).read_text()
        assert made == text, "write it anew: python -m potluck.engines.serial.header"
