"""Frames over Bluetooth Low Energy, in packets: `firmware/src/ble.c` on the host's side.

A packet is a head and bytes of one frame. The head counts packets modulo 128; its highest bit marks a frame's first.
A `PacketLine` makes a `Line` of anything that carries packets whole: a radio's library, a socket that keeps them apart.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from potluck.engines.serial.link import Gone

LEAST, MOST, FIRST = 23, 247, 0x80
SERVICE = "6e400001-b5a3-f393-e0a9-e50e24dcca9e"  # Nordic's UART service, which many boards and apps know
TO_BOARD, FROM_BOARD = (f"6e40000{n}{SERVICE[8:]}" for n in (2, 3))  # written; notified


def packets(data: bytes, mtu: int, number: int) -> list[bytes]:
    """Cut one or more whole frames into packets, the first of them with this number."""
    out: list[bytes] = []
    room = mtu - 4
    for frame in data.split(b"\0")[:-1]:
        whole = frame + b"\0"
        for at in range(0, len(whole), room):
            out.append(bytes([(number + len(out)) % FIRST | (0 if at else FIRST)]) + whole[at : at + room])
    return out


class Assembler:
    """Bytes of the stream from packets; after a gap, from the next first packet on."""

    def __init__(self) -> None:
        self._next, self._lost = 0, True
        self.gaps = 0

    def feed(self, packet: bytes) -> bytes:
        if len(packet) < 2:
            return b""
        number = packet[0] % FIRST
        if number != self._next:
            self.gaps += 1
            self._lost = True
        self._next = (number + 1) % FIRST
        self._lost &= packet[0] < FIRST
        return b"" if self._lost else packet[1:]


class PacketLine:
    """A line over packets. `receive` returns one packet, `send` takes one; `wait` is what `select` can wait for."""

    def __init__(
        self, wait: Callable[[], int], receive: Callable[[], bytes], send: Callable[[bytes], object],
        close: Callable[[], None], mtu: int = LEAST,
    ) -> None:  # fmt: skip
        if not LEAST <= mtu <= MOST:
            raise ValueError(f"mtu: must be {LEAST} to {MOST}, got {mtu}")
        self._wait, self._receive, self._send, self._close, self._mtu = wait, receive, send, close, mtu
        self._heard, self._number = Assembler(), 0

    def fileno(self) -> int:
        return self._wait()

    def read(self) -> bytes:
        return self._heard.feed(self._receive())

    def write(self, data: bytes) -> None:
        for packet in packets(data, self._mtu, self._number):
            self._number = (self._number + 1) % FIRST
            self._send(packet)

    def close(self) -> None:
        self._close()


def over_socket(line: socket.socket, mtu: int = LEAST) -> PacketLine:
    """Packets over a connected socket of kind SOCK_SEQPACKET: a bridge to a radio, or a test."""

    def receive() -> bytes:
        packet = line.recv(MOST)
        if not packet:
            raise Gone("the line was closed")
        return packet

    return PacketLine(line.fileno, receive, line.send, line.close, mtu)
