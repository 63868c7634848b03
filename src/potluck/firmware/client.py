"""A client of a run that trains on a board: FedCFC's tasks in, its reports out.

The board holds the weights and the samples. It receives CUD, CUM and a key, and answers with its LUD. Its weights are
read back only for evaluation and checkpoints, and to write them to a restarted board.
"""

from __future__ import annotations

import time
import zlib
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from potluck import keys
from potluck.engines.chunks import Job
from potluck.engines.local.boards import Outcome
from potluck.engines.serial.board import Board, Refused
from potluck.engines.serial.link import Gone
from potluck.engines.serial.messages import NO_TASK, Fitted, Hello, Region, Setup, Train, Trained, Trouble
from potluck.engines.serial.shelf import Shelf
from potluck.errors import BadInput, Code
from potluck.firmware.emulator import Emulator
from potluck.firmware.shape import weights_as_stored, weights_from
from potluck.fleet import Data, Done, Local, Params
from potluck.methods import fedcfc
from potluck.methods.parts.fedcfc import precision
from potluck.methods.parts.fedcfc.quantised import Vector, unpacked
from potluck.methods.parts.fedcfc.start import Begin, begin
from potluck.models import Model
from potluck.models.cfc import as_series, spans

_NUMPY: dict[int, np.dtype[Any]] = {0: np.dtype("<f4"), 1: np.dtype("<f2"), 2: np.dtype("i1")}  # of the wire's formats


def shelf_of(model: Model, train: Data, valid: Data | None) -> Shelf:
    """A client's samples in the layout of a board: steps, label, CRC-32, values, time spans."""
    steps, channels = as_series(model.shape)
    parts: list[bytes] = []
    counts = []
    for data in (train, valid):
        rows = [] if data is None else [i for i in range(len(data.y)) if float(data.weight[i]) > 0]
        counts.append(len(rows))
        if data is None:
            continue
        since = spans(data.t, model.settings["interval"]) if model.name == "cfc" else None  # others do not read times
        for i in rows:
            length = steps if data.length is None else int(data.length[i])
            head = np.array([length, int(data.y[i])], "<u2").tobytes()
            values = _floats(data.x[i].reshape(steps, channels)) + (b"" if since is None else _floats(since[i]))
            parts += [head, zlib.crc32(head + values).to_bytes(4, "little"), values]
    return Shelf(b"".join(parts), *counts)


def _floats(values: Tensor) -> bytes:
    return values.contiguous().numpy().astype("<f4").tobytes()


class BoardClient:
    """Implements `potluck.engines.local.boards.ExternalClient`."""

    def __init__(
        self,
        board: Board,
        model: Model,
        setup: Setup,
        train: Data,
        valid: Data | None = None,
        running: Emulator | None = None,
        scaler: bytes = b"",
    ) -> None:
        self.board, self._scaler = board, scaler
        self._model = model
        self._names = list(model.init(0))
        self._session = (keys.number("session", time.time_ns()) & 0x7FFFFFFF) | 1
        self._setup = replace(setup, session=self._session)
        self._shelf = shelf_of(model, train, valid)
        self._judged = valid is not None
        self._train = train
        self._running = running  # the emulator, where there is one; it is stopped with this client
        self._kept = NO_TASK
        self._placed = False  # the board has this run's setup, weights and samples
        self._newer = False  # the board's weights are newer than those fetched last
        self._last: Any = None  # the client's private state as it was fetched last

    def run(self, job: Job) -> Outcome:
        """Do a task. A Begin runs here and is written to the board with the first round; a Round runs on the board."""
        if isinstance(job.task, Begin):
            local = Local(self._model, self._train, job.mine, torch.tensor(job.key))
            done = begin(job.task, local)
            self._placed = False
            return Outcome(done)
        self._last = job.mine
        began, before = time.monotonic(), (self.board.sent, self.board.received)
        try:
            update, trained = self._update(job)
        except Gone as error:
            return Outcome(None, lost=f"the board does not answer: {error}")
        except BadInput as error:
            return Outcome(None, lost=str(error))
        note = (
            f"task {job.number} took {time.monotonic() - began:.2f} s and {self.board.sent - before[0]} bytes down, "
            f"{self.board.received - before[1]} up; loss {trained.loss:.4f}, {trained.steps} steps"
        )
        return Outcome(Done(update), note=note)

    def _update(self, job: Job) -> tuple[Any, Trained | Fitted]:
        """What the client tells the server, and what the board says of its training."""
        trained, lud = self._trained(job)
        # A client without validation rows among others that have some counts as 0, as in `fedcfc.train`.
        valid = 0.0 if self._judged and not self._shelf.valid else trained.valid
        return fedcfc.Report(lud, torch.tensor(valid), {}, {}), trained

    def forget(self) -> None:
        """Set the board up again before the next task."""
        self._placed = False

    def took(self, number: int) -> None:
        if not self._placed:  # after a Begin, whose result the next round writes
            return
        with suppress(Gone, Refused):  # gone after training: when it is back it says which task it kept
            self.board.keep(number)
        self._kept = number
        self._newer = True

    def fetch(self) -> Any:
        if not self._newer or self._last is None:
            return None
        int8 = self._setup.weights == 2
        like = precision.loaded(self._last.weights)
        count = sum(value.numel() for value in like.values())
        try:
            self._greeted()
            data = self.board.read(Region.WEIGHTS, count * (1 if int8 else 4))
            scales = self.board.read(Region.SCALES, 4 * len(self._names)) if int8 else b""
        except (Gone, BadInput):
            return None  # gone: what was fetched last counts
        self._newer = False
        weights: Params = weights_from(data, scales, like, self._names, int8)
        return replace(self._last, weights=weights)

    def snapshot(self) -> Any:
        return {"session": self._session, "kept": self._kept, "placed": self._placed}

    def restore(self, saved: Any) -> None:
        """Go back to a checkpoint. A board that is ahead of it is set up again before the next task."""
        self._session = int(saved["session"])
        self._setup = replace(self._setup, session=self._session)
        self._kept, self._newer = int(saved["kept"]), False
        try:
            there = self.board.connect()
        except (Gone, BadInput):
            self._placed = False
            return
        self._placed = bool(saved["placed"]) and self._is_ours(there) and there.kept == self._kept

    def close(self) -> None:
        self.board.close()
        if self._running is not None:
            self._running.stop()

    def _is_ours(self, hello: Hello) -> bool:
        return bool(hello.ready) and hello.session == self._session

    def _greeted(self) -> Hello:
        """Connect, and see whether the board still has this run's weights; after a restart it has those it kept."""
        hello = self.board.connect()
        if self._placed and self._is_ours(hello):
            self._kept = hello.kept
        else:
            self._placed = False
        return hello

    def _trained(self, job: Job) -> tuple[Trained, Vector]:
        """Let the board train. A board that is not ready is set up once more."""
        self._greeted()
        if not self._placed:
            self._place(cast(fedcfc.Mine, job.mine))
        task: fedcfc.Round = job.task
        aim = unpacked(replace(task.cud, scale=task.cud.scale[:0]))  # its length does not matter
        aimed = bool(aim.abs().sum() > 0)
        order = Train(
            task=job.number,
            key=job.key & ((1 << 64) - 1),
            cum=float(task.cum),
            crc=zlib.crc32(_floats(aim)) if aimed else 0,
            batch=task.batch,
            aimed=int(aimed),
        )
        wire = _NUMPY[self._setup.wire]
        cud = task.cud.values.numpy().astype(wire).tobytes()
        try:
            trained = self.board.train(order, cud)
        except Refused as error:
            if error.trouble not in (Trouble.NOT_READY, Trouble.STALE_TASK):
                raise
            self._place(cast(fedcfc.Mine, job.mine))
            trained = self.board.train(order, cud)
        values = np.frombuffer(self.board.read(Region.LUD, aim.numel() * wire.itemsize), wire)
        scale = torch.tensor([trained.scale]) if self._setup.wire == 2 else torch.zeros(0)
        return trained, Vector(torch.from_numpy(values.copy()), scale)

    def _place(self, mine: Any) -> None:
        self._install(*weights_as_stored(mine.weights, self._names))

    def _install(self, data: bytes, scales: bytes) -> None:
        try:
            self.board.install(self._setup, data, scales, self._shelf, self._kept, self._scaler)
        except Refused as error:
            if error.trouble == Trouble.NO_ROOM:
                raise BadInput(
                    Code.BOARD_MEMORY, f"does not fit: {self.board.name} has too little memory for this network."
                ) from None
            raise
        self._placed = True
