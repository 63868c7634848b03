"""Bounded influence: no update changes a model much more than the others do.

The change of a field is its difference to the field of the same name in the task: the weights that came back, less the
weights that were sent. A field that the task does not have is a change itself. Its size is its root mean square, so
that sub-models of all widths compare. A change larger than `times` the running median of the accepted sizes is scaled
down to that; its direction stays. So one client moves a mean by at most `times` the share of an honest one.

Fields with models (dicts of tensors, and anything called `weights`) are bounded. An update says otherwise with

    BOUNDED: ClassVar = {"control": "", "weights": "start"}

where each bounded field has the name of the task's field it began from, or "" for a change.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from potluck.fleet import Arrival, Lost, Message
from potluck.wire.codec import walk

Answer = TypeVar("Answer", bound=Arrival | Lost | None)
WINDOW = 64  # sizes that the median is taken of
FEW = 5  # with fewer of them, a change counts at most as much as the weights that it changes


@dataclass(frozen=True)
class Changed:
    """A bounded field of an update: its tensors, each with the tensor of the task that it began from, or None."""

    name: str
    pairs: tuple[tuple[Any, Any | None], ...]


def changed(update: Message, task: Message) -> list[Changed]:
    """The bounded fields of an update that have any tensors."""
    declared: Mapping[str, str] | None = getattr(type(update), "BOUNDED", None)
    names = [field.name for field in dataclasses.fields(update)] if dataclasses.is_dataclass(update) else []
    found = []
    for name in names:
        value = getattr(update, name)
        if name not in (declared if declared is not None else (name,) if isinstance(value, Mapping) else ("weights",)):
            continue
        began = getattr(task, name if declared is None else declared[name] or "", None)
        pairs = tuple(_pairs(value, began))
        if pairs:
            found.append(Changed(name, pairs))
    return found


def _pairs(value: Any, began: Any) -> list[tuple[Any, Any | None]]:
    """The tensors of a value, each with the one at the same place in `began`."""
    if isinstance(value, Mapping):
        there = began if isinstance(began, Mapping) else {}
        return [pair for name, item in value.items() for pair in _pairs(item, there.get(name))]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = [(getattr(value, f.name), getattr(began, f.name, None)) for f in dataclasses.fields(value)]
        return [pair for item, there in parts for pair in _pairs(item, there)]
    if isinstance(value, Place) or (isinstance(value, Tensor) and _counts(value)):
        return [(value, began if type(began) is type(value) else None)]
    return []


def _counts(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.dim() > 0


class Place(int):
    """The number of a tensor in a flattened value, in the place of the tensor."""


def sizes_of(update: Message, task: Message) -> tuple[float, ...]:
    """The size of the change of each bounded field."""
    return tuple(
        _size([(value - base_of(value, began))[None] for value, began in field.pairs])[0]
        for field in changed(update, task)
    )


def stacked_sizes(
    fields: Sequence[Changed], values: Sequence[Tensor], began: Sequence[Tensor], shared: Sequence[bool]
) -> list[tuple[float, ...]]:
    """The same for a stack of updates, whose fields hold places. Tensors of `began` that are `shared` have no rows."""
    columns = []
    for field in fields:
        changes = []
        for place, origin in field.pairs:
            value = values[place]
            if not _counts(value[0]):
                continue
            if origin is not None and value.shape[1:] == began[origin].shape[0 if shared[origin] else 1 :]:
                value = value - began[origin]
            changes.append(value)
        if changes:
            columns.append(_size(changes))
    return list(zip(*columns, strict=True)) if columns else [()] * len(values[0])


def _size(stacks: Sequence[Tensor]) -> list[float]:
    """The root mean square of each row, over stacks of equally many rows."""
    flat = [stack.reshape(len(stack), -1).float() for stack in stacks]
    squares = torch.stack([torch.linalg.vector_norm(rows, dim=1).square() for rows in flat]).sum(0)
    found: list[float] = (squares / max(1, sum(rows.shape[1] for rows in flat))).sqrt().tolist()
    return found


def base_of(value: Tensor, began: Tensor | None) -> Tensor | float:
    return began if began is not None and began.shape == value.shape else 0.0


class Bound:
    """The running medians of one run, by message and field.

    Updates that are gathered together are compared with each other, in whatever order they arrived; a single one, and
    a group of fewer than five, with those before.
    """

    def __init__(self, times: float) -> None:
        self.times = times  # 0: nothing is bounded
        self.said: Callable[[Arrival, str], None] = lambda arrival, what: None  # called for what is scaled down
        self._sizes: dict[str, deque[float]] = {}
        self._asked: dict[int, tuple[Message, Sequence[float]]] = {}  # task number -> the task, sizes of the changes

    def expect(self, number: int, task: Message, sizes: Sequence[float] | None, update: Message) -> None:
        """Note the task that an accepted update answers, until the update is handed to the method."""
        if self.times:
            self._asked[number] = task, sizes_of(update, task) if sizes is None else sizes

    def one(self, answer: Answer) -> Answer:
        """An answer within the bound."""
        return cast(Answer, self.all([answer])[0]) if isinstance(answer, Arrival) else answer

    def all(self, arrivals: Sequence[Arrival]) -> list[Arrival]:
        """Arrivals that were gathered together, each within the bound."""
        if not self.times:
            return list(arrivals)
        asked = [self._asked.pop(arrival.task) for arrival in arrivals]
        fields = [changed(arrival.update, task) for arrival, (task, _) in zip(arrivals, asked, strict=True)]
        together: dict[str, list[float]] = {}
        for arrival, found, (_, sizes) in zip(arrivals, fields, asked, strict=True):
            for field, size in zip(found, sizes, strict=True):
                together.setdefault(_key(arrival, field), []).append(size)
        middle = {key: median(sizes) for key, sizes in together.items() if len(sizes) >= FEW}
        return [
            self._held(arrival, found, sizes, middle)
            for arrival, found, (_, sizes) in zip(arrivals, fields, asked, strict=True)
        ]

    def _held(
        self, arrival: Arrival, fields: Sequence[Changed], sizes: Sequence[float], middle: Mapping[str, float]
    ) -> Arrival:
        for field, size in zip(fields, sizes, strict=True):
            key = _key(arrival, field)
            known = self._sizes.setdefault(key, deque(maxlen=WINDOW))
            most = self.times * middle[key] if key in middle else self._most(known, field)
            if most and size > most:
                less = {field.name: _shrunk(arrival.update, field, most / size)}
                arrival = dataclasses.replace(arrival, update=dataclasses.replace(arrival.update, **less))
                self.said(arrival, f"the change of {field.name} is {size / most:.3g} times as large as allowed")
                size = most
            known.append(size)
        return arrival

    def _most(self, known: deque[float], field: Changed) -> float:
        """The largest size that is allowed by the changes before; 0 where nothing is known."""
        if len(known) >= FEW:
            return self.times * median(known)
        before = [base[None] for base in (base_of(*pair) for pair in field.pairs) if isinstance(base, Tensor)]
        own = _size(before)[0] if before else 0.0
        return own or (self.times * median(known) if known else 0.0)

    def snapshot(self) -> dict[str, list[float]]:
        return {name: list(known) for name, known in self._sizes.items()}

    def restore(self, saved: Mapping[str, Sequence[float]]) -> None:
        self._sizes = {name: deque(known, maxlen=WINDOW) for name, known in saved.items()}


def _key(arrival: Arrival, field: Changed) -> str:
    return f"{type(arrival.update).__name__}.{field.name}"


def _shrunk(update: Message, field: Changed, share: float) -> Any:
    """The field with its change scaled by `share`."""
    began = {id(value): base_of(value, origin) for value, origin in field.pairs}

    def less(tensor: Tensor) -> Tensor:
        if id(tensor) not in began:
            return tensor
        base = began[id(tensor)]
        base = base.double() if isinstance(base, Tensor) else base
        return (base + share * (tensor.double() - base)).to(tensor.dtype)  # a float32 difference may overflow

    return walk(getattr(update, field.name), less)
