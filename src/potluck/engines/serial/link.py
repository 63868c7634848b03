"""Lines to boards: TCP sockets, Unix sockets and serial ports, with one interface to read and write bytes.

An address is `tcp:HOST:PORT`, `unix:PATH` or `serial:DEVICE@BAUD` (default 115200). What stands behind a
`?` are options (`seal.py`).
"""

from __future__ import annotations

import os
import select
import socket
from typing import Protocol

from potluck.errors import BadInput, Code

FORMS = "tcp:HOST:PORT, unix:PATH or serial:DEVICE@BAUD"


class Gone(ConnectionError):
    """The line is closed or cannot be opened."""


class Silent(Gone):
    """The line is open, but the board does not answer."""


class Line(Protocol):
    def fileno(self) -> int: ...
    def read(self) -> bytes: ...
    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...


def check(address: str) -> tuple[str, str]:
    """Split an address into its kind and the rest, without its options. Anything else raises BadInput."""
    kind, _, rest = address.partition("?")[0].partition(":")
    if kind == "tcp":
        host, _, port = rest.rpartition(":")
        if host and port.isdecimal() and 0 < int(port) < 65536:
            return kind, rest
    elif kind == "unix" and rest:
        return kind, rest
    elif kind == "serial" and rest:
        device, at, baud = rest.rpartition("@")
        if not at or (device and baud.isdecimal()):
            return kind, rest
    raise BadInput(Code.BOARD_ADDRESS, f"board: an address must be {FORMS}, got {address!r}.")


def open_line(address: str, patience: float = 2.0, parity: bool = False) -> Line:
    """Open the line at an address. One that cannot be opened raises Gone."""
    kind, rest = check(address)
    try:
        if kind == "serial":
            device, at, baud = rest.rpartition("@")
            return _Serial(device if at else rest, int(baud) if at else 115200, parity)
        if kind == "unix":
            line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            line.settimeout(patience)
            try:
                line.connect(rest)
            except OSError:
                line.close()
                raise
        else:
            host, _, port = rest.rpartition(":")
            line = socket.create_connection((host, int(port)), timeout=patience)
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise Gone(f"{address} cannot be reached ({error.strerror or error})") from None
    return Socket(line)


class Socket:
    """A connected socket."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line

    def fileno(self) -> int:
        return self._line.fileno()

    def read(self) -> bytes:
        data = self._line.recv(4096)
        if not data:
            raise Gone("the line was closed")
        return data

    def write(self, data: bytes) -> None:
        self._line.sendall(data)

    def close(self) -> None:
        self._line.close()


class _Serial:
    """A serial port in raw mode."""

    def __init__(self, device: str, baud: int, parity: bool = False) -> None:
        try:
            import termios
            import tty
        except ImportError:
            raise BadInput(
                Code.BOARD_ADDRESS, "board: serial ports need Linux or macOS; use tcp:HOST:PORT here."
            ) from None
        speed = getattr(termios, f"B{baud}", None)
        if speed is None:
            raise BadInput(
                Code.BOARD_ADDRESS,
                f"board: the speed must be one of this system's, got {baud} baud.",
            )
        self._file = os.open(device, os.O_RDWR | os.O_NOCTTY)
        try:
            tty.setraw(self._file)
            mode = termios.tcgetattr(self._file)
            mode[4] = mode[5] = speed
            mode[2] |= termios.PARENB if parity else 0  # even, as boot loaders want it
            termios.tcsetattr(self._file, termios.TCSANOW, mode)
        except termios.error as error:
            os.close(self._file)
            raise Gone(f"{device} is not a serial port ({error})") from None

    def fileno(self) -> int:
        return self._file

    def read(self) -> bytes:
        data = os.read(self._file, 4096)
        if not data:
            raise Gone("the serial port was closed")
        return data

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._file, data) :]

    def close(self) -> None:
        os.close(self._file)


def waiting(line: Line, seconds: float) -> bool:
    """Whether there is something to read within the time."""
    return bool(select.select([line.fileno()], [], [], max(0.0, seconds))[0])
