"""Turns `fleet.boards` into clients that train on boards: real ones by their address, emulated ones started here.

An address is `tcp:HOST:PORT`, `unix:PATH`, `serial:DEVICE@BAUD`, or `qemu:BOARD` for an emulator that runs as long as
the run. Behind it may stand `?key=FILE`, the key of the board, `weights=int8`, for layers that it stores in int8, and
`keep=fours` or another way for a CFC's activations (`potluck.models.memory`).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from potluck.engines.serial.board import Board
from potluck.engines.serial.link import check
from potluck.engines.serial.seal import split_options
from potluck.errors import BadInput, Code, unknown
from potluck.firmware.bits import BitsClient, rounds_there, sharing
from potluck.firmware.boards import board as board_named
from potluck.firmware.client import BoardClient
from potluck.firmware.emulator import Emulator
from potluck.firmware.fit import FitClient, fit_setup
from potluck.firmware.image import Image, build, write_image
from potluck.firmware.shape import Setup, checked_options, memory_needed, setup_of
from potluck.fleet import ClientProgram, Data
from potluck.methods import fedcfc
from potluck.models import Model
from potluck.tasks import Classification, Task

MOST_CHANNELS = 16  # PL_MAX_CHANNELS
SILENCE = 20.0  # seconds without a message after which a board is gone; while it trains it sends two per second


class _Emulated(Emulator):
    """An emulator with a temporary folder, which `stop` removes."""

    def __init__(self, image: Image, folder: Path, key: bytes | None) -> None:
        write_image(image, folder / "image.elf", key)
        super().__init__(folder / "image.elf", f"unix:{folder / 'line'}", folder / "flash.bin")
        self._folder = folder

    def stop(self) -> None:
        super().stop()
        shutil.rmtree(self._folder, ignore_errors=True)


def board_setup(model: Model, config: Any, **how: Any) -> Setup:
    """The SETUP record of a network: FedCFC's own, or one for a method that trains by `learn.fit`."""
    _check_task(model.task)
    return (setup_of if isinstance(config, fedcfc.Config) else fit_setup)(model, config, **how)


def _check_task(task: Task) -> None:
    """Refuse what the C client cannot train: its loss is the cross-entropy of classes."""
    if task == Classification(task.metric, task.outputs):
        return
    got = f"the task {task.kind}"
    if isinstance(task, Classification):
        got = "task.balance" if task.weights else "task.labels below 1"
    raise BadInput(
        Code.METHOD_TASK,
        f"task: a board learns plain classes by their cross-entropy, all rows labelled and of one weight, got {got}.",
    )


def _scaler(scale: Any, channels: int) -> bytes:
    """Mean and 1/deviation of each channel, for the board's own sensor; nothing where samples are not standardised."""
    if scale is None or channels > MOST_CHANNELS or any(np.size(part) != channels for part in scale):
        return b""
    return b"".join(np.asarray(part, "<f4").tobytes() for part in scale)


def attach(
    addresses: Mapping[str, str],
    places: Mapping[str, int],
    model: Model,
    config: Any,
    data: Callable[[int], tuple[Data, Data | None]],
    programs: Mapping[type, ClientProgram],
    scale: Callable[[int], Any] = lambda place: None,
    silence: float = SILENCE,
) -> dict[int, BoardClient | FitClient]:
    """Connect the boards. Return their clients by index. What a board cannot do raises BadInput."""
    clients: dict[int, BoardClient | FitClient] = {}
    board_setup(model, config)
    for name, address in addresses.items():
        if name not in places:
            raise unknown(Code.UNKNOWN_CLIENT, "fleet.boards: client", name, list(places)[:50])
        checked_options(address)
        where, _ = split_options(address)
        if where.startswith("qemu:"):
            board_named(where.removeprefix("qemu:"))
        else:
            check(address)
    try:
        for name, address in addresses.items():
            place = places[name]
            train, valid = data(place)
            address, options = split_options(address)
            ours = isinstance(config, fedcfc.Config)
            form = config.precisions[place % len(config.precisions)] if ours else options.weights
            setup = board_setup(model, config, timed=train.t is not None, form=form, keep=options.keep)
            rounds = rounds_there(model, config, setup)
            setup = sharing(setup) if rounds else setup
            running = None
            if address.startswith("qemu:"):
                image = build(board_named(address.removeprefix("qemu:")), memory_needed(setup))
                running = _Emulated(image, Path(tempfile.mkdtemp(prefix="potluck-")), options.key)
                running.start().wait_until_open()
                address = running.address
            board = Board(name, address, silence, options.key)
            scaler = _scaler(scale(place), setup.inputs)
            if ours or rounds:
                kind = BoardClient if ours else BitsClient
                clients[place] = kind(board, model, setup, train, valid, running, scaler)
            else:
                clients[place] = FitClient(board, model, setup, programs, train, valid, running, scaler)
    except BaseException:
        for client in clients.values():
            client.close()
        raise
    return clients
