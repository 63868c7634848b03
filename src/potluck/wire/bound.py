"""Bounded influence: no update changes a model much more than the others do.

The change of a field is its difference to the field of the same name in the task: the weights that came back, less the
weights that were sent. A field that the task does not have is a change itself. Its size is its root mean square, so
that sub-models of all widths compare. The usual size is the one that four fifths of the updates of a round stay below,
in that one of the last ten rounds where it was largest. A change larger than `times` the usual size is scaled down to
that; its direction stays. So up to a fifth of the clients cannot raise the bound.

Not the median, and not of one round: late in training most clients change little, and those whom the model does not fit
yet change much more than the median. They are the ones who need their share.

Fields with models (dicts of tensors, and anything called `weights`) are bounded. An update says otherwise with

    BOUNDED: ClassVar = {"control": "", "weights": "start"}

where each bounded field has the name of the task's field it began from, or "" for a change.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from potluck.fleet import Arrival, ClientId, Lost, Message
from potluck.wire.codec import fields_of, walk

Answer = TypeVar("Answer", bound=Arrival | Lost | None)
USUAL = 0.8  # share of the updates that stay below the usual size
ROUNDS = 10  # whose usual sizes count
WINDOW = 64  # updates that come one by one and count as a round; most clients of which the latest is known
AT_ONCE = 1 << 19  # numbers of differences that stay in cache
FEW = 5  # with fewer updates, a change counts at most as much as the weights that it changes


@dataclass(frozen=True)
class Changed:
    """A bounded field of an update: its tensors, each with the tensor of the task that it began from, or None."""

    name: str
    pairs: tuple[tuple[Any, Any | None], ...]


def changed(update: Message, task: Message) -> list[Changed]:
    """The bounded fields of an update that have any tensors."""
    declared: Mapping[str, str] | None = getattr(type(update), "BOUNDED", None)
    found = []
    for name in _bounded(update):
        began = getattr(task, name if declared is None else declared[name] or "", None)
        pairs = tuple(_pairs(getattr(update, name), began))
        if pairs:
            found.append(Changed(name, pairs))
    return found


def _bounded(update: Message) -> list[str]:
    """The names of the bounded fields; one of them may have no tensors."""
    kind: Any = type(update)
    names, declared = fields_of(kind), getattr(kind, "BOUNDED", None)
    if declared is not None:
        return [name for name in names if name in declared]
    return [name for name in names if name == "weights" or isinstance(getattr(update, name), Mapping)]


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
        _size([((value - base_of(value, began))[None], None) for value, began in field.pairs])[0]
        for field in changed(update, task)
    )


def stacked_sizes(
    fields: Sequence[Changed], values: Sequence[Tensor], began: Sequence[Tensor], shared: Sequence[bool]
) -> list[tuple[float, ...]]:
    """The same for a stack of updates, whose fields hold places. Tensors of `began` that are `shared` have no rows."""
    columns = []
    for field in fields:
        changes: list[tuple[Tensor, Tensor | None]] = []
        for place, origin in field.pairs:
            value = values[place]
            if not _counts(value[0]):
                continue
            base = None
            if origin is not None and value.shape[1:] == began[origin].shape[0 if shared[origin] else 1 :]:
                base = began[origin].expand_as(value) if shared[origin] else began[origin]
            changes.append((value, base))
        if changes:
            columns.append(_size(changes))
    return list(zip(*columns, strict=True)) if columns else [()] * len(values[0])


def _size(stacks: Sequence[tuple[Tensor, Tensor | None]]) -> list[float]:
    """The root mean square of each row less its base, over stacks of equally many rows."""
    squares = torch.stack([_norms(rows, base).square() for rows, base in stacks]).sum(0)
    found: list[float] = (squares / max(1, sum(rows[0].numel() for rows, _ in stacks))).sqrt().tolist()
    return found


def _norms(rows: Tensor, base: Tensor | None) -> Tensor:
    """The norm of each row less its base. A few rows at a time: all differences at once would need new memory."""
    count = len(rows)
    parts = max(1, min(count // 2, -(-rows.numel() // AT_ONCE)))
    cuts = [count * i // parts for i in range(parts + 1)]
    differences = (rows[a:b] if base is None else rows[a:b] - base[a:b] for a, b in pairwise(cuts))
    return torch.cat([torch.linalg.vector_norm(part.flatten(1).float(), dim=1) for part in differences])


def base_of(value: Tensor, began: Tensor | None) -> Tensor | float:
    return began if began is not None and began.shape == value.shape else 0.0


@dataclass
class Sizes:
    """Sizes of one field of one message: the latest of each client that came alone, and the usual ones of rounds."""

    single: dict[ClientId, float]
    recent: deque[float]  # of all that came alone
    usual: deque[float]
    came: int = 0  # single updates so far; WINDOW of them are a round

    @staticmethod
    def of(
        single: Mapping[ClientId, float] | None = None,
        recent: Sequence[float] = (),
        usual: Sequence[float] = (),
        came: int = 0,
    ) -> Sizes:
        return Sizes(dict(single or {}), deque(recent, maxlen=WINDOW), deque(usual, maxlen=ROUNDS), came)

    def gathered(self, sizes: Sequence[float]) -> None:
        self.usual.append(usual(sizes))

    def add(self, client: ClientId, size: float) -> None:
        """Note the size of a single update, as accepted. A client has one vote, however often it sends."""
        self.recent.append(size)
        self.single.pop(client, None)
        self.single[client] = size
        if len(self.single) > WINDOW:
            del self.single[next(iter(self.single))]
        self.came += 1
        if self.came % WINDOW == 0 and len(self.single) >= FEW:
            self.usual.append(usual(self.single.values()))

    def known(self) -> float:
        """The largest usual size; 0 with fewer than five updates. Fewer than five clients vote once for each."""
        votes = self.single.values() if len(self.single) >= FEW else self.recent
        return max([*self.usual, *([usual(votes)] if len(votes) >= FEW else [])], default=0.0)


def usual(sizes: Collection[float]) -> float:
    """The largest size once the largest fifth is left out."""
    return sorted(sizes)[int(USUAL * (len(sizes) - 1))]


class Bound:
    """The usual sizes of one run, by message and field.

    Updates that are gathered together are compared with each other, in whatever order they arrived, and with the rounds
    before; a single one, and a group of fewer than five, with those before.
    """

    def __init__(self, times: float) -> None:
        self.times = times  # 0: nothing is bounded
        self.said: Callable[[Arrival, str], None] = lambda arrival, what: None  # called for what is scaled down
        self._sizes: dict[str, Sizes] = {}
        self._asked: dict[int, tuple[Message, Sequence[float]]] = {}  # task number -> the task, sizes of the changes

    def expect(self, number: int, task: Message, sizes: Sequence[float] | None, update: Message) -> None:
        """Note the task that an accepted update answers, until the update is handed to the method."""
        if self.times:
            self._asked[number] = task, sizes_of(update, task) if sizes is None else sizes

    def within(self, like: Message, task: Message, sizes: Sequence[tuple[float, ...] | None]) -> bool:
        """Whether no update that is gathered in one round has to be scaled down; if so, their sizes are noted.

        All answer this task, and look like one of them.
        """
        if not self.times:
            return True
        columns = list(zip(*(one or () for one in sizes), strict=False))
        keys = [f"{type(like).__name__}.{field.name}" for field in changed(like, task)]
        if len(sizes) < FEW or None in sizes or len(columns) != len(keys):
            return False
        after = {}
        for key, column in zip(keys, columns, strict=True):
            known = self._sizes.get(key) or Sizes.of()
            after[key] = Sizes.of(known.single, tuple(known.recent), tuple(known.usual), known.came)
            after[key].gathered(column)
            limit = self.times * after[key].known()
            if not limit or max(column) > limit:
                return False
        self._sizes |= after
        return True

    def one(self, answer: Answer) -> Answer:
        """An answer within the bound."""
        if not isinstance(answer, Arrival) or not self.times or self._as_it_is(answer):
            return answer
        return cast(Answer, self.all([answer])[0])

    def _as_it_is(self, arrival: Arrival) -> bool:
        """Whether a single update need not be scaled down, without taking it apart; if so, its sizes are noted."""
        sizes, names = self._asked[arrival.task][1], _bounded(arrival.update)
        known = [self._sizes.get(f"{type(arrival.update).__name__}.{name}") for name in names]
        if len(sizes) != len(names):  # a field without tensors
            return False
        for one, size in zip(known, sizes, strict=True):
            limit = 0.0 if one is None else self.times * one.known()
            if not limit or not size <= limit:
                return False
        del self._asked[arrival.task]
        for one, size in zip(known, sizes, strict=True):
            assert one is not None
            one.add(arrival.client, size)
        return True

    def all(self, arrivals: Sequence[Arrival]) -> Sequence[Arrival]:
        """Arrivals that were gathered together, each within the bound."""
        if not self.times:
            return arrivals
        asked = [self._asked.pop(arrival.task) for arrival in arrivals]
        fields = [changed(arrival.update, task) for arrival, (task, _) in zip(arrivals, asked, strict=True)]
        together: dict[str, list[float]] = {}
        for arrival, found, (_, sizes) in zip(arrivals, fields, asked, strict=True):
            for field, size in zip(found, sizes, strict=True):
                together.setdefault(_key(arrival, field), []).append(size)
        rounds = {key for key, sizes in together.items() if len(sizes) >= FEW}
        for key, sizes in together.items():
            known = self._sizes.setdefault(key, Sizes.of())
            if key in rounds:
                known.gathered(sizes)
        limits = {key: self.times * self._sizes[key].known() for key in together}
        came: list[tuple[ClientId, str, float]] = []
        bounded = []
        for arrival, found, (_, sizes) in zip(arrivals, fields, asked, strict=True):
            for field, size in zip(found, sizes, strict=True):
                key = _key(arrival, field)
                most = limits[key] or self._first(self._sizes[key], field)
                if most and size > most:
                    less = {field.name: _shrunk(arrival.update, field, most / size)}
                    arrival = dataclasses.replace(arrival, update=dataclasses.replace(arrival.update, **less))
                    self.said(arrival, f"the change of {field.name} is {size / most:.3g} times as large as allowed")
                came.append((arrival.client, key, min(size, most or size)))
            bounded.append(arrival)
        for client, key, size in sorted(came):  # in one order, whoever was faster
            if key not in rounds:
                self._sizes[key].add(client, size)
        return bounded

    def _first(self, known: Sizes, field: Changed) -> float:
        """The largest size of one of the first updates: the size of the weights that it changes; 0 where that is 0."""
        before = [(base[None], None) for base in (base_of(*pair) for pair in field.pairs) if isinstance(base, Tensor)]
        own = _size(before)[0] if before else 0.0
        return own or (self.times * usual(known.recent) if known.recent else 0.0)

    def snapshot(self) -> dict[str, dict[str, Any]]:
        return {
            name: {
                "single": dict(known.single),
                "recent": list(known.recent),
                "usual": list(known.usual),
                "came": known.came,
            }
            for name, known in self._sizes.items()
        }

    def restore(self, saved: Mapping[str, Mapping[str, Any]]) -> None:
        self._sizes = {name: Sizes.of(**known) for name, known in saved.items()}


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
