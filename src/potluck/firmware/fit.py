"""A client of a run whose training happens on a board, for every method that trains by `learn.fit`.

The client's program runs here, with its private state. Where it calls `fit`, the weights go to the board, the board
trains on its own samples, and the weights come back. So FedAvg, FTL, FedPer, Ditto, SCAFFOLD and your own method
work unchanged.
"""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from potluck import keys, learn
from potluck.engines.chunks import Job
from potluck.engines.local.boards import Outcome
from potluck.engines.programs import call
from potluck.engines.serial.board import Board, Refused
from potluck.engines.serial.link import Gone
from potluck.engines.serial.messages import Fit, Fitted, Region, Setup, Trouble
from potluck.errors import BadInput, Code
from potluck.firmware.client import shelf_of
from potluck.firmware.emulator import Emulator
from potluck.firmware.layers import FORMATS, LOSS_ALONE, MOST_BATCH, MOST_EPOCHS, PULL, VELOCITY, layered_setup
from potluck.firmware.shape import cfc_setup, weights_as_stored, weights_from
from potluck.fleet import ClientProgram, Data, Local, Params
from potluck.learn import Pull, Recipe
from potluck.methods.parts.fedcfc import precision
from potluck.models import Model


class FitClient:
    """Implements `potluck.engines.local.boards.ExternalClient`. What lasts on the board are its samples and the
    model it trained last; the run does not depend on that."""

    def __init__(
        self,
        board: Board,
        model: Model,
        setup: Setup,
        programs: Mapping[type, ClientProgram],
        train: Data,
        valid: Data | None = None,
        running: Emulator | None = None,
        scaler: bytes = b"",
    ) -> None:
        self.board, self._scaler = board, scaler
        self._model, self._programs = model, programs
        self._train, self._valid = train, valid
        session = (keys.number("session", time.time_ns()) & 0x7FFFFFFF) | 1
        self._setup = replace(setup, session=session)
        self._int8 = setup.weights == FORMATS.index("int8")
        self._names = list(model.init(0))
        self._shelf = shelf_of(model, train, valid)
        self._running = running
        self._placed = False
        self._fits: list[Fitted] = []
        self._number = 0

    def run(self, job: Job) -> Outcome:
        local = Local(
            self._model, self._train, job.mine, torch.tensor(job.key), job.carry, job.mail, job.parcel, self._valid
        )
        began, before = time.monotonic(), (self.board.sent, self.board.received)
        self._fits = []
        try:
            with learn.elsewhere(self._fit):
                done = call(self._programs[type(job.task)], job.task, local)
        except Gone as error:
            self._placed = False
            return Outcome(None, lost=f"the board does not answer: {error}")
        except BadInput as error:
            return Outcome(None, lost=str(error))
        note = (
            f"task {job.number} took {time.monotonic() - began:.2f} s and {self.board.sent - before[0]} bytes down, "
            f"{self.board.received - before[1]} up; {len(self._fits)} trainings, "
            f"loss {self._fits[-1].loss if self._fits else float('nan'):.4f}"
        )
        return Outcome(done, note=note)

    def took(self, number: int) -> None:
        """The private state is here. The board keeps the model it trained, for what its own sensor reads."""
        if self._fits:
            with suppress(Gone, Refused):
                self.board.keep(self._number)

    def fetch(self) -> Any:
        return None

    def snapshot(self) -> Any:
        return {}

    def restore(self, saved: Any) -> None:
        self._placed = False

    def close(self) -> None:
        self.board.close()
        if self._running is not None:
            self._running.stop()

    def _fit(
        self, model: Model, weights: Params, data: Data, recipe: Recipe, *, key: Tensor, pull: Pull | None = None,
        only: frozenset[str] | None = None, loss: Any = None, among: Any = None,
    ) -> Params:  # fmt: skip
        """`learn.fit` on the board. What it lacks raises BadInput."""
        mu, constant = _terms(pull, weights, self._names)
        if loss is not None or among is not None or model is not self._model or data is not self._train:
            raise _lacks("a loss or rows of its own")
        if recipe.optimiser != "sgd" or recipe.batch > MOST_BATCH or recipe.epochs > MOST_EPOCHS:
            raise _lacks(f"the optimiser {recipe.optimiser} with batches of {recipe.batch} in {recipe.epochs} epochs")
        self._provide((VELOCITY if recipe.momentum else 0) | (PULL if mu or constant else 0))
        first, last = self._moving(weights, only)
        start = self._stored(weights)
        order = partial(
            Fit, key=int(key) & ((1 << 64) - 1), crc=zlib.crc32(b"".join(start)), lr=recipe.lr,
            momentum=recipe.momentum, mu=mu, clip=recipe.clip, first=first, last=last,
            pull=zlib.crc32(constant) if constant else 0, batch=recipe.batch, epochs=recipe.epochs,
        )  # fmt: skip
        try:
            end = self._trained(order, start, constant)
        except Refused as error:
            if error.trouble not in (Trouble.NOT_READY, Trouble.OTHER_WEIGHTS, Trouble.OTHER_PULL):
                raise
            self._placed = False
            end = self._trained(order, start, constant)
        if not self._int8:
            return _unflat(end[0], weights, self._names)
        like = {name: value for name, value in weights.items() if name in self._names}
        after = precision.loaded(weights_from(*end, like, self._names, True))
        return {name: value if only is None or name in only else weights[name] for name, value in after.items()}

    def _provide(self, extras: int) -> None:
        """Set the board up anew if it has no memory for what a training needs beside the gradient."""
        if extras & ~self._setup.extras:
            self._setup, self._placed = replace(self._setup, extras=self._setup.extras | extras), False

    def _stored(self, weights: Params) -> tuple[bytes, bytes]:
        """Weights, and scales of int8 ones, in the layout of the board."""
        if self._int8:
            return weights_as_stored(precision.stored({n: weights[n] for n in self._names}, "int8"), self._names)
        return _flat(weights, self._names), b""

    def _trained(self, order: Any, start: tuple[bytes, bytes], constant: bytes) -> tuple[bytes, bytes]:
        hello = self.board.connect()
        if not self._placed or hello.session != self._setup.session:
            self.board.place(self._setup, self._shelf, self._scaler)
            self._placed = True
        self._number += 1
        self.board.write(Region.WEIGHTS, start[0])
        self.board.write(Region.SCALES, start[1])
        self.board.write(Region.PULL, constant)
        fitted = self.board.fit(order(self._number))
        end = self.board.read(Region.WEIGHTS, len(start[0])), start[1]
        if zlib.crc32(b"".join(end)) != fitted.crc:
            raise BadInput(
                Code.BOARD_LINE, f"board {self.board.name}: its weights must have the checksum it announced."
            )
        self._fits.append(fitted)
        return end

    def _moving(self, weights: Params, only: frozenset[str] | None) -> tuple[int, int]:
        """The weights that may move, as one range of all."""
        ends = np.cumsum([0, *(weights[name].numel() for name in self._names)])
        free = [i for i, name in enumerate(self._names) if only is None or name in only]
        if not free or free != list(range(free[0], free[-1] + 1)):
            raise _lacks("training of layers that do not lie together")
        return int(ends[free[0]]), int(ends[free[-1] + 1])


def _lacks(what: str) -> BadInput:
    return BadInput(Code.BOARD_SETTINGS, f"fleet.boards: this method asks for {what}, which boards lack.")


def _terms(pull: Pull | None, weights: Params, names: list[str]) -> tuple[float, bytes]:
    """Scale and constant of a pull. There is nothing to send without one, or for FedProx's: the board has its start."""
    if pull is None:
        return 0.0, b""
    scale = float(pull.scale)
    own = pull.minus is None and pull.shift is not None and all(pull.shift[name] is weights[name] for name in weights)
    if own and float(pull.times) == -scale:
        return scale, b""
    constants = {name: torch.as_tensor(pull.constant(name)).expand(weights[name].shape) for name in names}
    return scale, _flat(constants, names)


def _flat(weights: Params, names: list[str]) -> bytes:
    return b"".join(weights[name].detach().contiguous().numpy().astype("<f4").tobytes() for name in names)


def _unflat(data: bytes, like: Params, names: list[str]) -> Params:
    flat, at, out = torch.frombuffer(bytearray(data), dtype=torch.float32), 0, {}
    for name in names:
        shape = like[name].shape
        out[name] = flat[at : at + shape.numel()].reshape(shape).clone()
        at += shape.numel()
    return out


def fit_setup(model: Model, method: Any, form: str = "", **cfc: Any) -> Setup:
    """The record for a method, by its settings or one of its tasks; both have a `recipe`. `cfc` is for `cfc_setup`."""
    recipe = _recipe_of(method)
    if recipe.optimiser != "sgd" or recipe.batch > MOST_BATCH:
        raise BadInput(
            Code.BOARD_SETTINGS,
            f"method.recipe: must be sgd with batches of at most {MOST_BATCH} on boards, "
            f"got {recipe.optimiser} with {recipe.batch}.",
        )
    if model.name != "cfc":
        return layered_setup(model, recipe, pulled=_pulled(method), form=form)
    extras = (VELOCITY if recipe.momentum else 0) | (PULL if _pulled(method) else 0) | LOSS_ALONE
    return cfc_setup(model, form=form or "float32", extras=extras, **cfc)


def _recipe_of(method: Any) -> Recipe:
    recipe = getattr(method, "recipe", None)
    if not isinstance(recipe, Recipe):
        raise _lacks("training without method.recipe")
    return recipe


def _pulled(method: Any) -> bool:
    """Whether the method adds a term to the gradient: its file then names one of these."""
    file = sys.modules[type(method).__module__]
    return any(hasattr(file, name) for name in ("Pull", "prox", "pull_of", "correction"))
