"""Client programs that run on a board, for client machines of a deployment.

The machine keeps the private state and the samples, because its journal needs them. The board does the training. What a
task leaves on the board is read back with its answer.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import torch

from potluck.engines.chunks import Job
from potluck.engines.local.boards import ExternalClient
from potluck.engines.serial.board import Board
from potluck.engines.serial.link import Gone
from potluck.errors import BadInput, Code
from potluck.firmware.bits import BitsClient, rounds_there, sharing
from potluck.firmware.client import BoardClient
from potluck.firmware.fit import FitClient, fit_setup
from potluck.firmware.shape import checked_options, setup_of, weights_as_stored
from potluck.fleet import ClientProgram, Data, Done, Local
from potluck.methods import fedbits, fedcfc
from potluck.methods.parts.fedcfc import precision

T = TypeVar("T")


class BoardProgram:
    """FedCFC's Round on the board at an address."""

    def __init__(self, name: str, address: str, silence: float = 20.0) -> None:
        self._board, self._how = Board(name, address, silence), checked_options(address)
        self._client: BoardClient | None = None
        self._there = 0  # checksum of the weights that the board has
        self._number = 0

    def __call__(self, task: fedcfc.Round, local: Local) -> Done:
        mine: fedcfc.Mine = local.mine
        if self._client is None:
            form = precision.form_of(mine.weights)
            timed = local.data.t is not None
            setup = setup_of(local.model, mine.cfg, timed=timed, form=form, keep=self._how.keep)
            self._client = BoardClient(self._board, local.model, setup, local.data, local.valid)
        if self._there != _checksum(mine):  # the first task, or the server did not accept the last answer
            self._client.forget()
        job = Job(number=self._number, client=0, samples=0, task=task, key=int(local.key), mine=mine)
        self._number += 1
        done, after = _carried_out(self._board, self._client, job, self._client.fetch)
        if after is None:
            raise _silent(self._board)
        self._there = _checksum(after)
        return Done(done.update, mine=after)


class BoardTrainer:
    """The programs of a method that trains by `learn.fit`: they run here, and each `fit` runs on the board."""

    def __init__(self, name: str, address: str, programs: Mapping[type, ClientProgram], silence: float = 20.0) -> None:
        self._board, self._programs = Board(name, address, silence), programs
        self._how = checked_options(address)
        self._client: FitClient | None = None
        self._data: Data | None = None
        self._number = 0

    def programs(self) -> Mapping[type, ClientProgram]:
        return dict.fromkeys(self._programs, self.run)

    def run(self, task: Any, local: Local) -> Done:
        if self._client is None or self._data is None or not _same(self._data, local.data):
            timed = local.data.t is not None
            setup = fit_setup(local.model, task, form=self._how.weights, timed=timed, keep=self._how.keep)
            self._client = FitClient(self._board, local.model, setup, self._programs, local.data, local.valid)
            self._data = local.data
        job = Job(
            number=self._number, client=0, samples=0, task=task, key=int(local.key), mine=local.mine,
            carry=local.carry, mail=local.mail, parcel=local.parcel,
        )  # fmt: skip
        self._number += 1
        return _carried_out(self._board, self._client, job, lambda: None)[0]


class BitsProgram:
    """FedBits's Train on the board at an address, which rounds: the line carries the method's few bits a number.

    Settings that a board cannot round for train there only, as under any other method (`bits.rounds_there`).
    """

    def __init__(self, name: str, address: str, silence: float = 20.0) -> None:
        self._board, self._how = Board(name, address, silence), checked_options(address)
        self._trainer = BoardTrainer(name, address, {fedbits.Train: fedbits.train}, silence)
        self._client: BitsClient | None = None
        self._data: Data | None = None
        self._there = 0  # checksum of the state that the board has
        self._number = 0

    def __call__(self, task: fedbits.Train, local: Local) -> Done:
        mine: fedbits.Mine = local.mine
        if self._client is None or self._data is None or not _same(self._data, local.data):
            timed = local.data.t is not None
            setup = fit_setup(local.model, mine.cfg, form=self._how.weights, timed=timed, keep=self._how.keep)
            if not rounds_there(local.model, mine.cfg, setup):
                return self._trainer.run(task, local)
            self._client = BitsClient(self._board, local.model, sharing(setup), local.data, local.valid)
            self._data, self._there = local.data, 0
        if self._there != _state(mine):  # the first task, or the server did not accept the last answer
            self._client.forget()
        job = Job(number=self._number, client=0, samples=0, task=task, key=int(local.key), mine=mine)
        self._number += 1
        try:
            done, after = _carried_out(self._board, self._client, job, partial(self._client.own, mine))
        except Gone:
            raise _silent(self._board) from None
        self._there = _state(after)
        return Done(done.update, mine=after)


def _carried_out(board: Board, client: ExternalClient, job: Job, kept: Callable[[], T]) -> tuple[Done, T]:
    """What a job on the board gave, and what it left there, before the line is free for other programs."""
    try:
        outcome = client.run(job)
        if outcome.done is None:
            raise BadInput(Code.BOARD_LINE, f"board: {outcome.lost}")
        client.took(job.number)
        return outcome.done, kept()
    finally:
        board.close()


def _silent(board: Board) -> BadInput:
    return BadInput(Code.BOARD_LINE, f"board: {board.name} stopped answering before its weights were read")


def _state(mine: fedbits.Mine) -> int:
    return zlib.crc32(
        b"".join(value.numpy().tobytes() for tree in (mine.weights, mine.common) for value in tree.values())
    )


def _same(one: Data, other: Data) -> bool:
    parts = ("x", "y", "weight")
    return one is other or all(torch.equal(getattr(one, part), getattr(other, part)) for part in parts)


def _checksum(mine: fedcfc.Mine) -> int:
    names = [name for name in mine.weights if not name.endswith("#scale")]
    weights, scales = weights_as_stored(mine.weights, names)
    return zlib.crc32(weights + scales)
