"""What a task costs a client, counted before anybody runs it: MACs, bytes up, peak memory.

A program is run once on blank data for one mini-batch and once for two, under PyTorch's own operation counter; whatever
it does per epoch, per batch or per sample, the work of n samples lies on the line through those two. Memory is the peak
of live tensors in the one-batch run plus what the task itself brings, or what the method's `MEMORY` counts for a device
that does not run PyTorch. Nothing is typed in by hand. A client without samples of its own is priced by those in its
parcel, a program that chooses among its samples by its method's `WORK`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from potluck import keys
from potluck._peak import Peak
from potluck.engines.programs import call
from potluck.fleet import ClientProgram, Data, Done, Expectation, Local, Work
from potluck.learn import plain
from potluck.wire.codec import flatten, size
from potluck.wire.gate import Expected, expected_of, kinds_of


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
    left: Any = None  # private state of the right shapes, as a client has it after such a task


def blank(like: Data, samples: int) -> Data:
    """Data of the same sample shapes, with nothing in it."""

    def room(value: Tensor | None) -> Tensor | None:
        return None if value is None else torch.zeros((samples, *value.shape[1:]), dtype=value.dtype)

    length = None if like.length is None else torch.full((samples,), int(like.x.shape[1]), dtype=like.length.dtype)
    x, y = room(like.x), room(like.y)
    assert x is not None
    assert y is not None
    return Data(x, y, torch.ones(samples), room(like.t), length)


def batch_of(task: Any) -> int:
    """The mini-batch a task trains with: `task.recipe.batch`, else `task.batch`, else 1.

    These two names are part of the contract between a method and an engine. An engine prices a task before it runs,
    from one mini-batch and from two, so it must know how many samples a mini-batch has.
    """
    return max(1, int(getattr(getattr(task, "recipe", task), "batch", 1)))


def count(program: ClientProgram, task: Any, local: Local) -> Price:
    """Price a program for tasks like this one."""
    anchor = batch_of(task)
    first, macs_1, memory = _measured(program, task, local, anchor)
    second, macs_2, _ = _measured(program, task, local, 2 * anchor)

    def bytes_of(one: Any, two: Any) -> Line:
        # Tensors grow with the data; the header around them does not, but for a few digits.
        return Line(0 if one is None else size(one), (nbytes_of(two) - nbytes_of(one)) / anchor, anchor)

    return Price(
        Line(macs_1, (macs_2 - macs_1) / anchor, anchor),
        bytes_of(first.update, second.update),
        bytes_of(first.handoff, second.handoff),
        memory,
        expected_of(first.update, second.update),
        local.mine if first.mine is None else first.mine,
    )


def _measured(program: ClientProgram, task: Any, local: Local, samples: int) -> tuple[Done, float, int]:
    trial = Local(
        local.model,
        blank(local.data, samples),
        local.mine,
        keys.key(0),
        local.carry,
        local.mail,
        blank(local.parcel, samples) if _lives_on(local) else local.parcel,
        None if local.valid is None else blank(local.valid, samples),
    )
    given = flatten((task, trial.mine, trial.carry, trial.mail, trial.parcel, trial.data, trial.valid))[1]
    with plain(), FlopCounterMode(display=False) as flops, Peak(given) as peak:
        done = call(program, task, trial)
    brought = nbytes_of((task, trial.mine, trial.carry, trial.mail, trial.parcel, trial.data.x, trial.data.y))
    return done, flops.get_total_flops() / 2.0, brought + peak.peak


def nbytes_of(value: Any) -> int:
    _, tensors = flatten(value)
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


class Prices:
    """Prices counted so far, one per kind of task."""

    def __init__(
        self,
        programs: Mapping[type, ClientProgram],
        work: Mapping[type, Expectation] | None = None,
        private: Any = None,
        memory: Mapping[type, Callable[[Any, Local], int]] | None = None,
    ) -> None:
        self._programs = programs
        self._work = work or {}
        self._memory = memory or {}  # bytes of programs whose devices do not run PyTorch
        self._private = private  # what a client that begins has
        self._counted: dict[tuple[Any, ...], Price] = {}
        self._last: tuple[Any, Local, int, Price] | None = None

    def of(self, task: Any, local: Local, samples: int = 0) -> Price:
        if self._last is not None:  # a round's task is one object, and so is the first private state
            before, there, rows, known = self._last
            if before is task and there.mine is local.mine and there.parcel is local.parcel and rows == samples:
                return known
        expected = self._work.get(type(task))
        if expected is None:
            price = self._of(task, local)
        else:
            begins = replace(local, mine=self._private)
            price = _sum([(part, self._of(part.task, begins)) for part in expected(task, local, samples)])
        self._last = (task, local, samples, price)
        return price

    def _of(self, task: Any, local: Local) -> Price:
        parcel = blank(local.parcel, 0) if _lives_on(local) else local.parcel
        key = (type(task), _shape((task, local.mine, local.carry, parcel)), _lives_on(local))
        if key not in self._counted:
            price = count(self._programs[type(task)], task, local)
            own = self._memory.get(type(task))
            self._counted[key] = price if own is None else replace(price, memory=own(task, local))
        return self._counted[key]


def _lives_on(local: Local) -> bool:
    """Whether what counts is the parcel: a partner without samples of its own was handed some."""
    return isinstance(local.parcel, Data)


def _sum(parts: Sequence[tuple[Work, Price]]) -> Price:
    def total(name: str, share: str) -> Line:
        lines = [(getattr(price, name), getattr(part, share)) for part, price in parts]
        return Line(
            sum((line.at_anchor - line.anchor * line.per_sample) * often for line, often in lines),
            sum(line.per_sample * often for line, often in lines),
            0,  # parts may have been counted at unlike batches
        )

    return Price(
        total("macs", "macs"),
        total("up", "up"),
        total("handoff", "handoff"),
        max(price.memory for _, price in parts),
        parts[0][1].expected,
        parts[0][1].left,
    )


def _shape(value: Any) -> tuple[Any, ...]:
    skeleton, tensors = flatten(value)
    return skeleton, kinds_of(tensors)
