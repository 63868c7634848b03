"""A continuous-time network trained on a board for a method that trains by `learn.fit`.

The board's TRAIN is FedCFC's pass over the samples. With all three terms at 0 that is plain descent, so `fit` of a CFC
is a TRAIN from the weights written before. TRAIN begins from the weights that the board keeps in its flash: they are
written, kept, trained and read back.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

from torch import Tensor

from potluck.engines.serial.board import Refused
from potluck.engines.serial.messages import Fitted, Region, Setup, Train, Trouble
from potluck.errors import BadInput, Code
from potluck.firmware.fit import FitClient, lacks, unflat
from potluck.firmware.shape import setup_of, weights_from
from potluck.fleet import Data, Params
from potluck.learn import Pull, Recipe
from potluck.methods import fedcfc
from potluck.methods.parts.fedcfc import precision
from potluck.methods.parts.fedcfc.bind import Terms
from potluck.models import Model

FREE = Terms(0.0, 0.0, 0.0)  # no term binds f


def cfc_setup(model: Model, recipe: Recipe, *, timed: bool = False, form: str = "", **how: Any) -> Setup:
    """The record that installs a CFC for plain descent by this recipe. What a board lacks raises BadInput."""
    if recipe.momentum or recipe.optimiser != "sgd":
        raise BadInput(
            Code.BOARD_SETTINGS,
            f"method.recipe: must be sgd without momentum for a cfc on boards, got {recipe.optimiser} with "
            f"{recipe.momentum:g}.",
        )
    return setup_of(model, fedcfc.Config(terms=FREE, recipe=recipe), timed=timed, form=form, **how)


class CfcFitClient(FitClient):
    """A `FitClient` whose network is a CFC."""

    def _fit(
        self, model: Model, weights: Params, data: Data, recipe: Recipe, *, key: Tensor, pull: Pull | None = None,
        only: frozenset[str] | None = None, loss: Any = None, among: Any = None,
    ) -> Params:  # fmt: skip
        if pull is not None or only not in (None, model.trainable):
            raise lacks("a term beside the gradient, or layers that rest, in a cfc")
        if loss is not None or among is not None or model is not self._model or data is not self._train:
            raise lacks("a loss or rows of its own")
        wanted = cfc_setup(model, recipe)
        changed = {name: getattr(wanted, name) for name in ("lr", "clip", "epochs")}
        if any(getattr(self._setup, name) != value for name, value in changed.items()):
            self._setup, self._placed = replace(self._setup, **changed), False
        start = self._stored(weights)
        try:
            end = self._carried_out(recipe, start, int(key) & ((1 << 64) - 1))
        except Refused as error:
            if error.trouble not in (Trouble.NOT_READY, Trouble.STALE_TASK):
                raise
            self._placed = False
            end = self._carried_out(recipe, start, int(key) & ((1 << 64) - 1))
        if not self._int8:
            return unflat(end, weights, self._names)
        like = {name: value for name, value in weights.items() if name in self._names}
        return precision.loaded(weights_from(end, start[1], like, self._names, True))

    def _carried_out(self, recipe: Recipe, start: tuple[bytes, bytes], key: int) -> bytes:
        hello = self.board.connect()
        if not self._placed or hello.session != self._setup.session:
            self.board.place(self._setup, self._shelf, self._scaler)
            self._placed = True
        self.board.write(Region.WEIGHTS, start[0])
        self.board.write(Region.SCALES, start[1])
        self.board.keep(self._number)
        self._number += 1
        trained = self.board.train(Train(self._number, key, cum=-1.0, crc=0, batch=recipe.batch, aimed=0), b"")
        end = self.board.read(Region.WEIGHTS, len(start[0]))
        self._fits.append(
            Fitted(trained.task, trained.steps, trained.ticks, trained.loss, trained.valid, zlib.crc32(end))
        )
        return end
