"""What a task costs a client, counted before it runs: MACs, bytes up, peak memory, samples visited.

A program runs once on blank data of one mini-batch and once of two, under PyTorch's own operation counter. Its work is
affine in the number of samples, so these two points give the work of any number. Memory is the peak of live tensors in
the run of one batch, plus what the task itself brings. For a device that does not run PyTorch, the method's `MEMORY`
counts it. A client without samples is priced by those in its parcel. A program that decides while it runs how much to
do is priced by its method's `WORK`. Nothing is typed in by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from potluck import compiled, keys
from potluck._flops import counter
from potluck._peak import Effort, Peak
from potluck.engines.programs import call
from potluck.fleet import ClientProgram, Data, Done, Expectation, Local, Work
from potluck.learn import plain, visits
from potluck.wire.apart import Apart
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


NONE = Line(0.0, 0.0, 0)


class Amounts(NamedTuple):
    """What a task of some samples costs."""

    macs: float
    visits: float
    up: int  # bytes
    handoff: int
    ops: float = 0.0  # operations of the framework, where they are counted
    recorded: float = 0.0  # operations that autograd records
    moved: float = 0.0  # bytes that they read and write
    fresh: float = 0.0  # bytes of large new results


@dataclass(frozen=True)
class Price:
    """What one task costs. Amounts that depend on the data are lines over the number of samples."""

    macs: Line
    up: Line
    handoff: Line
    memory: int
    expected: Expected
    visits: Line  # samples in gradient steps; a sample counts once per epoch
    left: Any = None  # private state of the right shapes, as a client has it after the task
    ops: Line = NONE
    recorded: Line = NONE
    moved: Line = NONE
    fresh: Line = NONE

    def at(self, samples: int) -> Amounts:
        """The amounts for so many samples. Many tasks have equally many, so they are kept."""
        if samples not in self._known:
            up, handoff = round(self.up.of(samples)), round(self.handoff.of(samples))
            self._known[samples] = Amounts(
                self.macs.of(samples),
                self.visits.of(samples),
                up,
                handoff,
                self.ops.of(samples),
                self.recorded.of(samples),
                self.moved.of(samples),
                self.fresh.of(samples),
            )
        return self._known[samples]

    @cached_property
    def _known(self) -> dict[int, Amounts]:
        return {}


def blank(like: Data, samples: int) -> Data:
    """Data of the same sample shapes, filled with zeros."""

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


def count(program: ClientProgram, task: Any, local: Local, effort: bool = False) -> Price:
    """Price a program for tasks like this one; with `effort` also its operations, as the client carries them out."""
    anchor = batch_of(task)
    first, macs_1, memory, visits_1 = _measured(program, task, local, anchor)
    second, macs_2, _, visits_2 = _measured(program, task, local, 2 * anchor)

    def bytes_of(one: Any, two: Any) -> Line:
        # Tensors grow with the data; the header around them grows by a few digits at most.
        return Line(0 if one is None else size(one), (nbytes_of(two) - nbytes_of(one)) / anchor, anchor)

    return Price(
        Line(macs_1, (macs_2 - macs_1) / anchor, anchor),
        bytes_of(first.update, second.update),
        bytes_of(first.handoff, second.handoff),
        memory,
        expected_of(first.update, second.update),
        Line(visits_1, (visits_2 - visits_1) / anchor, anchor),
        local.mine if first.mine is None else first.mine,
        *(_effort(program, task, local, anchor) if effort else ()),
    )


def _effort(program: ClientProgram, task: Any, local: Local, anchor: int) -> list[Line]:
    """Operations, recorded ones, bytes moved and fresh, as clients do them: dense networks have a shorter way."""
    found = []
    for samples in (anchor, 2 * anchor):
        with compiled.off(), Effort() as one:
            call(program, task, _trial(local, samples))
        found.append((one.ops, one.recorded, one.moved, one.fresh))
    return [Line(once, (twice - once) / anchor, anchor) for once, twice in zip(*found, strict=True)]


def _trial(local: Local, samples: int) -> Local:
    """The local side of a client with so many blank samples."""
    return Local(
        local.model,
        blank(local.data, samples),
        local.mine,
        keys.key(0),
        local.carry,
        local.mail,
        blank(local.parcel, samples) if _trains_on_parcel(local) else local.parcel,
        None if local.valid is None else blank(local.valid, samples),
    )


def _measured(program: ClientProgram, task: Any, local: Local, samples: int) -> tuple[Done, float, int, float]:
    trial = _trial(local, samples)
    given = flatten((task, trial.mine, trial.carry, trial.mail, trial.parcel, trial.data, trial.valid))[1]
    with plain(), visits() as seen, counter() as flops, Peak(given) as peak:
        done = call(program, task, trial)
    brought = nbytes_of((task, trial.mine, trial.carry, trial.mail, trial.parcel, trial.data.x, trial.data.y))
    return done, flops.get_total_flops() / 2.0, brought + peak.peak, round(sum(seen), 4)


def memory_at(program: ClientProgram, task: Any, local: Local, samples: int) -> int:
    """The bytes that a task takes of a client with so many samples, where a price has those of one mini-batch."""
    return _measured(program, task, local, samples)[2]


def nbytes_of(value: Any) -> int:
    """Bytes of all tensors in a value."""
    _, tensors = flatten(value)
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


class Prices:
    """Counts the price of each kind of task once. Tasks are of one kind if class and shapes are the same."""

    def __init__(
        self,
        programs: Mapping[type, ClientProgram],
        work: Mapping[type, Expectation] | None = None,
        private: Any = None,
        memory: Mapping[type, Callable[[Any, Local], int]] | None = None,
        effort: bool = False,
    ) -> None:
        self._effort = effort
        self._programs = programs
        self._work = work or {}
        self._memory = memory or {}  # counts the bytes for devices that do not run PyTorch
        self._private = private  # of a client before its first task
        self._counted: dict[tuple[Any, ...], Price] = {}
        self._last: tuple[Any, Local, int, Price] | None = None
        self._side: tuple[Local, Any] | None = None  # the last local side, and its shape

    def of(self, task: Any, local: Local, samples: int = 0, apart: Apart | None = None) -> Price:
        """The price of a task for a client with this local side and so many samples; `apart`: the task, if known."""
        if self._last is not None:  # a round's task is one object, and so is the first private state
            before, there, rows, known = self._last
            if before is task and there.mine is local.mine and there.parcel is local.parcel and rows == samples:
                return known
        expected = self._work.get(type(task))
        if expected is None:
            price = self._of(apart or Apart(task), local)
        else:
            begins = replace(local, mine=self._private)
            price = _sum([(part, self._of(Apart(part.task), begins)) for part in expected(task, local, samples)])
        self._last = (task, local, samples, price)
        return price

    def alike(self, task: type) -> bool:
        """Whether tasks of this class with equal shapes have equal prices: none depends on the numbers in the task."""
        return task not in self._work and task not in self._memory

    @property
    def last(self) -> tuple[Any, Local]:
        """The task that was priced last, and the client's side of it."""
        assert self._last is not None
        return self._last[:2]

    def _of(self, apart: Apart, local: Local) -> Price:
        task = apart.value
        key = (type(task), apart.shape, self._shape(local), _trains_on_parcel(local))
        if key not in self._counted:
            price = count(self._programs[type(task)], task, local, self._effort)
            own = self._memory.get(type(task))
            self._counted[key] = price if own is None else replace(price, memory=own(task, local))
        return self._counted[key]

    def _shape(self, local: Local) -> Any:
        """The shape of private state, carry and parcel. Most clients of most methods have none, or the same."""
        if self._side is not None:
            before, shape = self._side
            if before.mine is local.mine and before.carry is local.carry and before.parcel is local.parcel:
                return shape
        parcel = blank(local.parcel, 0) if _trains_on_parcel(local) else local.parcel
        self._side = (local, Apart((local.mine, local.carry, parcel)).shape)
        return self._side[1]


def _trains_on_parcel(local: Local) -> bool:
    """Whether the samples are those in the parcel, as for an access point."""
    return isinstance(local.parcel, Data)


def _sum(parts: Sequence[tuple[Work, Price]]) -> Price:
    def total(name: str, share: str) -> Line:
        lines = [(getattr(price, name), getattr(part, share)) for part, price in parts]
        return Line(
            sum((line.at_anchor - line.anchor * line.per_sample) * often for line, often in lines),
            sum(line.per_sample * often for line, often in lines),
            0,  # the parts may have been counted with different batches
        )

    return Price(
        total("macs", "macs"),
        total("up", "up"),
        total("handoff", "handoff"),
        max(price.memory for _, price in parts),
        parts[0][1].expected,
        total("visits", "macs"),
        parts[0][1].left,
        total("ops", "macs"),
        total("recorded", "macs"),
        total("moved", "macs"),
        total("fresh", "macs"),
    )
