"""An emulated board: QEMU's mps2-an386 (Cortex-M4F) runs an image, with its serial line on a socket.

It needs no privileges and no terminal. With `counted`, one instruction takes 1 ns of emulated time, so the board's
clock counts instructions and gives the same figure every time.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType

from potluck.engines.serial.link import check
from potluck.errors import BadInput, Code
from potluck.firmware.toolchain import needs

MACHINE = "mps2-an386"
INSTRUCTIONS_PER_TICK = 40  # of the board's 25 MHz timer, at 1 ns per instruction
PR_SET_PDEATHSIG = 1


class Emulator:
    """A running board. `address` is `tcp:HOST:PORT` or `unix:PATH`; `flash` is a file that outlives it."""

    def __init__(
        self, image: Path, address: str, flash: Path | None = None, *, counted: bool = False, log: Path | None = None
    ) -> None:
        self.address = address
        self._command = command(image, address, flash, counted=counted)
        if flash is not None:
            flash.touch()
        self._log = log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Emulator:
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                preexec_fn=_end_with_parent,
            )
        return self

    def wait_until_open(self, seconds: float = 20.0) -> Emulator:
        """Wait for the emulator's socket. An emulator that ended raises BadInput with its last words."""
        from potluck.engines.serial.link import Gone, open_line

        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self.process is not None
            if self.process.poll() is not None:
                assert self.process.stderr is not None
                raise BadInput(
                    Code.FIRMWARE_FAILED,
                    f"firmware: QEMU ended: {self.process.stderr.read().decode(errors='replace').strip()}",
                )
            with contextlib.suppress(Gone):
                open_line(self.address, 0.5).close()
                return self
            time.sleep(0.02)
        raise BadInput(Code.FIRMWARE_FAILED, f"firmware: QEMU did not open {self.address} within {seconds:g} s.")

    def stop(self) -> None:
        if self.process is not None:
            if self.process.poll() is None:
                self.process.kill()
            self.process.wait()
            if self.process.stderr is not None:
                self.process.stderr.close()
            self.process = None

    def __enter__(self) -> Emulator:
        return self.start().wait_until_open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.stop()


def command(image: Path, address: str, flash: Path | None = None, *, counted: bool = False) -> list[str]:
    kind, rest = check(address)
    if kind == "serial":
        raise BadInput(
            Code.BOARD_ADDRESS, f"board: an emulator's address must be tcp:HOST:PORT or unix:PATH, got {address!r}."
        )
    line = f"tcp:{rest},server=on,wait=off,nodelay=on" if kind == "tcp" else f"unix:{rest},server=on,wait=off"
    semihosting = f"enable=on,target=native,arg=potluck{'' if flash is None else f',arg={flash}'}"
    words = [needs("qemu-system-arm", "emulation"), "-M", MACHINE, "-display", "none", "-monitor", "none"]
    words += ["-serial", line, "-semihosting-config", semihosting, "-kernel", str(image)]
    return [*words, "-icount", "shift=0"] if counted else words


def _end_with_parent() -> None:
    """In the child process: end with the parent, so that a killed test leaves no emulator behind."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
