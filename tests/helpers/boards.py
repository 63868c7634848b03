"""Boards for tests: the client as a process of this machine, or under emulation; both with a flash file that lasts."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import torch

from potluck import keys
from potluck.engines.serial.board import Board
from potluck.engines.serial.link import Line, Socket
from potluck.errors import Missing
from potluck.firmware import toolchain
from potluck.firmware.toolchain import host_program
from potluck.fleet import Data, Params

ARENA = 60_000


def emulation() -> str | None:
    """Why there is no emulation here, if there is none."""
    try:
        toolchain.arm_compiler()
        toolchain.needs("qemu-system-arm", "emulation")
    except Missing as missing:
        return str(missing)
    return None


class Process:
    """The client as an ordinary process, its line a pair of sockets; opened anew, it is started anew."""

    def __init__(
        self, path: Path, sanitize: bool = False, arena: int = ARENA, page: int = 4096, unit: int = 4,
        flash: int = 1 << 20, key: bytes | None = None,
    ) -> None:  # fmt: skip
        defines = {"PL_ARENA": arena, "PL_PAGE": page, "PL_UNIT": unit, "PL_FLASH": flash}
        self._program = host_program("posix", sanitize=sanitize, defines=defines)
        self._words = [str(self._program), str(path), *([] if key is None else [key.hex()])]
        self._key = key
        self.process: subprocess.Popen[bytes] | None = None
        self._line: Socket | None = None

    def open(self) -> Line:
        self.kill()
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(self._words, stdin=theirs, stdout=theirs)
        ours.settimeout(30)
        self._line = Socket(ours)
        return self._line

    def kill(self) -> None:
        if self._line is not None:
            self._line.close()
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def board(self, silence: float = 10.0) -> Board:
        return Board("test", self.open, silence, self._key)


def apart(ours: Params, theirs: Params) -> float:
    """The largest difference of two models, over what the second one has."""
    return max(float((ours[name] - value).abs().max()) for name, value in theirs.items())


def series(count: int, steps: int = 12, channels: int = 3, classes: int = 4, seed: int = 0) -> tuple[Any, Any]:
    """Waves of different pitch: short series that a small network can tell apart."""
    rng = keys.rng("series", seed)
    y = rng.integers(0, classes, count)
    phase, time = rng.uniform(0, 2 * np.pi, (count, 1, 1)), np.arange(steps)[None, :, None]
    pitch = (0.3 + 0.25 * y[:, None, None]) * (1 + 0.2 * np.arange(channels))
    x = np.sin(pitch * time + phase) + 0.1 * rng.normal(size=(count, steps, channels))
    return x.astype(np.float32), y


def data(count: int, *, irregular: bool = False, seed: int = 0, **shape: int) -> Data:
    x, y = series(count, seed=seed, **shape)
    t = length = None
    if irregular:
        t = torch.cumsum(0.2 + keys.uniform(keys.key("t", seed), x.shape[:2]), 1)
        length = torch.tensor([x.shape[1] - i % 4 for i in range(count)])
    return Data(torch.from_numpy(x), torch.from_numpy(y), torch.ones(count), t, length)
