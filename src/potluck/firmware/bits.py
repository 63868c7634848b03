"""A client of FedBits that trains and rounds on a board, so that the line carries the method's few bits a number.

The board has its weights, the common ones, and what rounding left out (firmware/src/share.c). This side remembers the
common weights too: every training names their checksum.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from potluck.engines.chunks import Job
from potluck.engines.serial.board import Refused
from potluck.engines.serial.link import Gone, Silent
from potluck.engines.serial.messages import Fit, Fitted, Region, Setup, Shift, Tell, Trained, Trouble
from potluck.errors import BadInput
from potluck.firmware.client import BoardClient
from potluck.firmware.layers import MOST_EPOCHS, SHARE
from potluck.fleet import Params
from potluck.methods import fedbits
from potluck.methods.parts.few_bits import FLOAT, Packed, names_of, unpacked
from potluck.models import Model


def rounds_there(model: Model, config: Any, setup: Setup) -> bool:
    """Whether a board can round for this method; else it trains only, and the line carries float32 weights."""
    if not isinstance(config, fedbits.Config) or setup.weights or config.bits == FLOAT:
        return False
    plain = config.strength == 1 and config.rounding == "nearest" and config.feedback
    return plain and config.recipe.epochs <= MOST_EPOCHS and _range(model, config) is not None


def sharing(setup: Setup) -> Setup:
    """The same network with memory for what it shares."""
    return replace(setup, extras=setup.extras | SHARE)


def _range(model: Model, config: fedbits.Config) -> tuple[int, int] | None:
    """The shared weights as one range of all; None where they do not lie together."""
    weights = model.init(0)
    shared = set(names_of(config.bind, weights, model.trainable, model.last_layers(config.layers)))
    ends = [0, *accumulate(value.numel() for value in weights.values())]
    at = [k for k, name in enumerate(weights) if name in shared]
    if not at or at != list(range(at[0], at[-1] + 1)):
        return None
    return ends[at[0]], ends[at[-1] + 1]


class BitsClient(BoardClient):
    """Implements `potluck.engines.local.boards.ExternalClient`."""

    _common: Tensor | None = None  # c, after the last update that the server took
    _next: Tensor | None = None  # and after the one at hand

    def _update(self, job: Job) -> tuple[fedbits.Trained, Trained | Fitted]:
        try:
            return self._exchanged(job)
        except Refused as error:  # a board that was reset, or has other weights, is set up once more
            if error.trouble not in (Trouble.NOT_READY, Trouble.STALE_TASK, Trouble.OTHER_WEIGHTS):
                raise
            self._placed = False
        except Silent:
            raise
        except Gone:  # the line was cut: the board may have restarted
            pass
        return self._exchanged(job)

    def _exchanged(self, job: Job) -> tuple[fedbits.Trained, Fitted]:
        if not self._placed or not self.board.talking:  # a board that restarts goes on with what it kept
            self._greeted()
        if not self._placed:
            self._place(job.mine)
        task: fedbits.Train = job.task
        config: fedbits.Config = job.mine.cfg
        span = _range(self._model, config)
        assert span is not None
        first, last = span
        common = self._at_present(job.mine)
        for number, (bits, change, after) in enumerate(self._changes(task, config, common, span)):
            self.board.shift(Shift(job.number, number, zlib.crc32(change), first, last, bits), change)
            common = after
        recipe = task.recipe
        fit = Fit(
            task=job.number, key=job.key & ((1 << 64) - 1), crc=zlib.crc32(_bytes(common)), lr=recipe.lr,
            momentum=recipe.momentum, mu=0.0, clip=recipe.clip, first=0, last=common.numel(), pull=0,
            batch=recipe.batch, epochs=recipe.epochs,
        )  # fmt: skip
        fitted = self.board.fit(fit)
        told = self.board.change(Tell(job.number, first, last, config.bits))
        self._next = common
        scales = 4 * len(self._within(span))
        update = fedbits.Trained(
            torch.frombuffer(bytearray(told[scales:]), dtype=torch.uint8),
            torch.frombuffer(bytearray(told[:scales]), dtype=torch.float32),
            {},
            self._train.weight.sum(),
        )
        return update, fitted

    def _changes(
        self, task: fedbits.Train, config: fedbits.Config, common: Tensor, span: tuple[int, int]
    ) -> Iterator[tuple[int, bytes, Tensor]]:
        """Each change of the common weights as bits and bytes, with the weights after it; at least one."""
        first, last = span
        if task.whole:
            common = common.clone()
            common[first:last] = torch.cat([value.reshape(-1) for value in task.whole.values()])
            yield FLOAT, _bytes(common[first:last]), common
            return
        if not task.numbers.shape[0]:
            yield 0, b"", common
        like = self._within(span)
        for numbers, scales in zip(task.numbers, task.scales, strict=True):
            change = unpacked(Packed(numbers, scales), like, config.bits)
            common = common.clone()
            common[first:last] += torch.cat([value.reshape(-1) for value in change.values()])
            yield config.bits, _bytes(scales) + numbers.numpy().tobytes(), common

    def _within(self, span: tuple[int, int]) -> Params:
        """Tensors like the shared ones."""
        found: Params = {}
        at = 0
        for name, value in self._model.init(0).items():
            if span[0] <= at < span[1]:
                found[name] = value
            at += value.numel()
        return found

    def _at_present(self, mine: fedbits.Mine) -> Tensor:
        return _flat({**mine.weights, **mine.common}, self._names) if self._common is None else self._common

    def took(self, number: int) -> None:
        super().took(number)
        self._common = self._next

    def restore(self, saved: Any) -> None:
        super().restore(saved)
        self._common = None  # what the checkpoint's private state has

    def forget(self) -> None:
        super().forget()
        self._common = None  # what the private state has

    def own(self, mine: fedbits.Mine) -> fedbits.Mine:
        """The private state after a task that was taken, but what rounding left out, which stays on the board.

        Only what is not shared is read; the shared weights are the common ones, from which the next training begins.
        """
        span, common = _range(self._model, mine.cfg), self._common
        assert span is not None
        assert common is not None
        flat = common.clone()
        for first, last in ((0, span[0]), (span[1], len(flat))):
            data = self.board.read(Region.WEIGHTS, 4 * (last - first), 4 * first)
            flat[first:last] = torch.from_numpy(np.frombuffer(data, "<f4").copy())
        shared = _unflat(common, mine.weights, self._names)
        return replace(
            mine, weights=_unflat(flat, mine.weights, self._names), common=_only(shared, self._within(span)), left={}
        )

    def fetch(self) -> fedbits.Mine | None:
        if not self._newer or self._last is None:
            return None
        count = sum(value.numel() for value in self._last.weights.values())
        try:
            self._greeted()
            data = self.board.read(Region.WEIGHTS, 3 * 4 * count)
        except (Gone, BadInput):
            return None  # gone: what was fetched last counts
        self._newer = False
        flat = torch.frombuffer(bytearray(data), dtype=torch.float32).reshape(3, count)
        weights, common, left = (_unflat(row, self._last.weights, self._names) for row in flat)
        span = _range(self._model, self._last.cfg)
        assert span is not None
        shared = self._within(span)
        return fedbits.Mine(weights, _only(common, shared), {}, _only(left, shared), self._last.cfg)

    def _place(self, mine: fedbits.Mine) -> None:
        """The weights that were fetched last, with the common ones of now."""
        nothing = {name: torch.zeros_like(value) for name, value in mine.weights.items()}
        common = self._at_present(mine)
        weights = {**mine.weights, **_only(_unflat(common, mine.weights, self._names), mine.common)}
        left = _flat({**nothing, **mine.left}, self._names)
        self._install(b"".join(map(_bytes, (_flat(weights, self._names), common, left))), b"")


def _bytes(values: Tensor) -> bytes:
    return values.detach().contiguous().numpy().astype("<f4").tobytes()


def _flat(weights: Params, names: list[str]) -> Tensor:
    return torch.cat([weights[name].detach().reshape(-1) for name in names])


def _unflat(flat: Tensor, like: Params, names: list[str]) -> Params:
    cut = torch.split(flat.clone(), [like[name].numel() for name in names])
    return {name: part.reshape(like[name].shape) for name, part in zip(names, cut, strict=True)}


def _only(weights: Params, names: Any) -> Params:
    return {name: weights[name] for name in names}
