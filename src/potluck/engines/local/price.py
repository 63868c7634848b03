"""What a task costs a client, counted before anybody runs it: MACs, bytes up, peak memory.

A program is run once on blank data for one mini-batch and once for two, under PyTorch's own operation counter; whatever
it does per epoch, per batch or per sample, the work of n samples lies on the line through those two. Memory is the peak
of live tensors in the one-batch run plus what the task itself brings. Nothing is typed in by hand.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from potluck import keys
from potluck.fleet import ClientProgram, Data, Done, Local
from potluck.learn import plain
from potluck.wire.codec import flatten, size
from potluck.wire.gate import Expected, expected_of


@dataclass(frozen=True)
class Line:
    """An amount that is affine in the number of samples."""

    at_anchor: float
    per_sample: float
    anchor: int

    def of(self, samples: int) -> float:
        return max(0.0, self.at_anchor + (samples - self.anchor) * self.per_sample)


@dataclass(frozen=True)
class Price:
    macs: Line
    up: Line
    handoff: Line
    memory: int
    expected: Expected


class _Peak(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows the bytes of live tensors that operations inside create."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = 0
        self.peak = 0
        self._known: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                self._follow(leaf.untyped_storage())
        return out

    def _follow(self, storage: torch.UntypedStorage) -> None:
        name = storage._cdata
        if name in self._known:
            return
        nbytes = storage.nbytes()

        def freed(_: Any) -> None:
            self._known.pop(name, None)
            self.live -= nbytes

        self._known[name] = weakref.ref(storage, freed)
        self.live += nbytes
        self.peak = max(self.peak, self.live)


def blank(like: Data, samples: int) -> Data:
    """Data of the same sample shapes, with nothing in it."""

    def room(value: Tensor | None) -> Tensor | None:
        return None if value is None else torch.zeros((samples, *value.shape[1:]), dtype=value.dtype)

    length = None if like.length is None else torch.full((samples,), int(like.x.shape[1]), dtype=like.length.dtype)
    x, y = room(like.x), room(like.y)
    assert x is not None
    assert y is not None
    return Data(x, y, torch.ones(samples), room(like.t), length)


def count(program: ClientProgram, task: Any, local: Local) -> Price:
    """Price a program for tasks like this one."""
    anchor = max(1, int(getattr(task, "batch", 1)))
    first, macs_1, memory = _measured(program, task, local, anchor)
    second, macs_2, _ = _measured(program, task, local, 2 * anchor)
    up_1, up_2 = size(first.update), size(second.update)
    hand_1, hand_2 = (0 if done.handoff is None else size(done.handoff) for done in (first, second))

    def line(a: float, b: float) -> Line:
        return Line(a, (b - a) / anchor, anchor)

    return Price(
        line(macs_1, macs_2),
        line(up_1, up_2),
        line(hand_1, hand_2),
        memory,
        expected_of(first.update, second.update),
    )


def _measured(program: ClientProgram, task: Any, local: Local, samples: int) -> tuple[Done, float, int]:
    trial = Local(
        local.model,
        blank(local.data, samples),
        local.mine,
        keys.key(0),
        local.carry,
        local.mail,
        local.parcel,
        None if local.valid is None else blank(local.valid, samples),
    )
    brought = nbytes_of((task, trial.mine, trial.carry, trial.mail, trial.parcel)) + nbytes_of(
        [trial.data.x, trial.data.y]
    )
    with plain(), FlopCounterMode(display=False) as flops, _Peak() as peak:
        done = program(task, trial)
    return done, flops.get_total_flops() / 2.0, brought + peak.peak


def nbytes_of(value: Any) -> int:
    _, tensors = flatten(value)
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


class Prices:
    """Prices counted so far, one per kind of task."""

    def __init__(self, programs: Mapping[type, ClientProgram]) -> None:
        self._programs = programs
        self._counted: dict[tuple[Any, ...], Price] = {}
        self._last: tuple[Any, Any, Price] | None = None

    def of(self, task: Any, local: Local) -> Price:
        if self._last is not None and self._last[0] is task and self._last[1] is local.mine:
            return self._last[2]
        key = (type(task), _shape((task, local.mine, local.carry, local.parcel)))
        if key not in self._counted:
            self._counted[key] = count(self._programs[type(task)], task, local)
        self._last = (task, local.mine, self._counted[key])
        return self._counted[key]


def _shape(value: Any) -> tuple[Any, ...]:
    skeleton, tensors = flatten(value)
    return skeleton, tuple(tuple(tensor.shape) for tensor in tensors)
