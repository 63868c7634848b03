"""What client programs return, as tensors and back: many results have the same parts in the same places."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any

from torch import Tensor

from potluck.fleet import Done
from potluck.rows import Row
from potluck.wire.codec import Column, Stacked, column, flatten

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


class Rebuilder:
    """Puts results together from their tensors."""

    def __init__(self, classes: Mapping[str, type]) -> None:
        self._classes = classes
        self._makers: dict[str, Column] = {}

    def __call__(
        self, parts: Sequence[Part], stacks: Sequence[Tensor], own: Sequence[bool], models: bool = False
    ) -> list[Done]:
        """What each client of a stack returned; the model after training for those whose `own` is wanted.

        With `models`, dicts of tensors stay rows of the stack (`potluck.rows`).
        """
        count = len(own)
        rows = stacks if models else [stack.unbind(0) for stack in stacks]
        known: dict[tuple[int, ...], list[Row]] = {}
        holes: Callable[[Any], Sequence[Any]] = (lambda found: Stacked(found, known)) if models else list
        columns: list[Iterable[Any]] = [
            repeat(None, count)
            if part.empty or (not any(own) and part is parts[-1])
            else self._maker(part.skeleton)(holes([rows[i] for i in part.places]), count)
            for part in parts
        ]
        if not all(own):
            columns[-1] = [value if wanted else None for value, wanted in zip(columns[-1], own, strict=True)]
        return [_done(*row) for row in zip(*columns, strict=True)]

    def _maker(self, skeleton: str) -> Column:
        """What puts the values of a skeleton together. Those of a round's results are asked for again and again."""
        if skeleton not in self._makers:
            if len(self._makers) >= MAKERS:
                self._makers.clear()
            self._makers[skeleton] = column(skeleton, self._classes)
        return self._makers[skeleton]


def _done(update: Any, mine: Any, carry: Any, handoff: Any, own: Any) -> Done:
    """A `Done`, without the `__init__` of a frozen class, which takes three times as long."""
    done = object.__new__(Done)
    done.__dict__.update(update=update, mine=mine, carry=carry, handoff=handoff, own=own)
    return done
