"""What client programs return, as tensors and back: many results have the same parts in the same places.

A stack of results is a block. It is taken apart, client by client, only where somebody asks for one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from typing import Any, NamedTuple

from torch import Tensor

from potluck.fleet import Done
from potluck.rows import Row
from potluck.wire.codec import Column, Stacked, column, fields_in, flatten, rebuild
from potluck.wire.gate import Seen

Known = dict[tuple[int, ...], list[Row]] | None  # rows by the places of their tensors; None: models are no rows
MAKERS = 256  # skeletons whose makers are kept


@dataclass(frozen=True)
class Part:
    """One part of what a program returned: its skeleton, and the places of its tensors among those of all parts."""

    skeleton: str
    places: range | list[int]

    @cached_property
    def empty(self) -> bool:
        """Whether it is None, as most parts of most results are."""
        return self.skeleton == "null"


def flattened(done: Done) -> tuple[list[Part], list[Tensor]]:
    """Update, mine, carry, handoff and own. A tensor of `own` that another part has as well is kept once."""
    parts: list[Part] = []
    tensors: list[Tensor] = []
    for value in (done.update, done.mine, done.carry, done.handoff):
        skeleton, found = flatten(value)
        parts.append(Part(skeleton, range(len(tensors), len(tensors) + len(found))))
        tensors += found
    place = {id(tensor): i for i, tensor in reversed(list(enumerate(tensors)))}
    skeleton, found = flatten(done.own)
    for tensor in found:
        if id(tensor) not in place:
            place[id(tensor)] = len(tensors)
            tensors.append(tensor)
    return [*parts, Part(skeleton, [place[id(tensor)] for tensor in found])], tensors


UPDATE, MINE, CARRY, HANDOFF, OWN = range(5)  # the places of the parts


class Result(NamedTuple):
    """What a program returned, and what the check of its update must know."""

    done: Done
    seen: Seen


@dataclass
class Block:
    """The results of the jobs of one chunk, in their order."""

    numbers: Sequence[int]  # of the jobs
    seen: Sequence[Seen]
    whole: Together | None = None  # where they were computed together
    given: Sequence[Done] = field(default_factory=list)  # where they were not

    @cached_property
    def done(self) -> Sequence[Done]:
        return self.given if self.whole is None else self.whole.taken_apart()

    @property
    def results(self) -> dict[int, Result]:
        """By the number of the job."""
        return dict(zip(self.numbers, map(Result, self.done, self.seen), strict=True))


class Rebuilder:
    """Puts results together from their tensors."""

    def __init__(self, classes: Mapping[str, type]) -> None:
        self._classes = classes
        self._makers: dict[str, Column] = {}
        self._fields: dict[str, dict[str, int | dict[str, int]]] = {}

    def __call__(
        self, parts: Sequence[Part], stacks: Sequence[Tensor], own: Sequence[bool], models: bool = False
    ) -> list[Done]:
        """What each client of a stack returned; the model after training for those whose `own` is wanted."""
        rows = stacks if models else [stack.unbind(0) for stack in stacks]
        known: Known = {} if models else None
        columns = [self.column(part, rows, len(own), known) for part in parts[:OWN]]
        columns.append(self.own(parts[OWN], rows, own, known))
        return [_done(*row) for row in zip(*columns, strict=True)]

    def column(self, part: Part, rows: Sequence[Any], count: int, known: Known) -> Iterable[Any]:
        """One part of each client's result, of the rows of each tensor.

        With `known` these are whole stacks, and dicts of tensors stay rows of them, the same for every part.
        """
        if part.empty:
            return repeat(None, count)
        given = [rows[i] for i in part.places]
        return self._maker(part.skeleton)(given if known is None else Stacked(given, known), count)

    def own(self, part: Part, rows: Sequence[Any], own: Sequence[bool], known: Known) -> Iterable[Any]:
        """The model after training of those clients whose `own` is wanted."""
        if not any(own):
            return repeat(None, len(own))
        found = self.column(part, rows, len(own), known)
        return found if all(own) else [value if wanted else None for value, wanted in zip(found, own, strict=True)]

    def one(self, part: Part, tensors: Sequence[Tensor]) -> Any:
        return rebuild(part.skeleton, tensors, self._classes)

    def fields(self, part: Part) -> dict[str, int | dict[str, int]]:
        """The places of the tensors of an update's fields, among those of the update."""
        if part.skeleton not in self._fields:
            if len(self._fields) >= MAKERS:
                self._fields.clear()
            self._fields[part.skeleton] = fields_in(part.skeleton, self._classes)
        return self._fields[part.skeleton]

    def _maker(self, skeleton: str) -> Column:
        """What puts the values of a skeleton together. Those of a round's results are asked for again and again."""
        if skeleton not in self._makers:
            if len(self._makers) >= MAKERS:
                self._makers.clear()
            self._makers[skeleton] = column(skeleton, self._classes)
        return self._makers[skeleton]


@dataclass
class Together:
    """The results of clients that were computed together: a row of each tensor is one client's."""

    parts: Sequence[Part]
    values: Sequence[Tensor]
    own: Sequence[bool]  # whether each client's model after training is wanted
    rebuilder: Rebuilder
    models: bool = False  # whether models stay rows of stacks when the results are taken apart

    def taken_apart(self) -> list[Done]:
        return self.rebuilder(self.parts, self.values, self.own, self.models)

    def has(self, part: int) -> bool:
        return not self.parts[part].empty and (part != OWN or any(self.own))

    def column(self, part: int) -> list[Any]:
        """One part of each client's result."""
        one, rows = self.parts[part], list[Any](self.values)
        for i in () if self.models else one.places:
            rows[i] = self.values[i].unbind(0)
        known: Known = {} if self.models else None
        if part == OWN:
            return list(self.rebuilder.own(one, rows, self.own, known))
        return list(self.rebuilder.column(one, rows, len(self.own), known))

    @property
    def looks(self) -> str:
        """What all updates look like."""
        return self.parts[UPDATE].skeleton

    def first(self) -> Any:
        """The first update."""
        part = self.parts[UPDATE]
        return self.rebuilder.one(part, [self.values[i][0] for i in part.places])

    def field(self, name: str) -> Tensor | dict[str, Tensor] | None:
        """A field of all updates, stacked; None where it is neither a tensor nor a dict of tensors."""
        part = self.parts[UPDATE]
        at = self.rebuilder.fields(part).get(name)
        if at is None:
            return None
        if isinstance(at, int):
            return self.values[part.places[at]]
        return {key: self.values[part.places[place]] for key, place in at.items()}


def _done(update: Any, mine: Any, carry: Any, handoff: Any, own: Any) -> Done:
    """A `Done`, without the `__init__` of a frozen class, which takes three times as long."""
    done = object.__new__(Done)
    done.__dict__.update(update=update, mine=mine, carry=carry, handoff=handoff, own=own)
    return done
