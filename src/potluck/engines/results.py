"""What client programs return, as tensors and back: many results have the same parts in the same places."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

from potluck.fleet import Done
from potluck.wire.codec import flatten, maker

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
        self._makers: dict[str, Callable[[Sequence[Tensor]], Any]] = {}

    def __call__(self, parts: Sequence[Part]) -> Callable[[Sequence[Tensor], bool], Done]:
        """The function for these parts: of a client's tensors, and of whether `own` is wanted."""
        made = [(i, part.places, self._maker(part.skeleton)) for i, part in enumerate(parts[:-1]) if not part.empty]
        last = None if parts[-1].empty else self._maker(parts[-1].skeleton)

        def rebuilt(tensors: Sequence[Tensor], own: bool) -> Done:
            values: list[Any] = [None] * len(parts)
            for i, places, make in made:
                values[i] = make([tensors[place] for place in places] if i else tensors)
            if own and last is not None:
                values[-1] = last([tensors[place] for place in parts[-1].places])
            return Done(*values)

        return rebuilt

    def _maker(self, skeleton: str) -> Callable[[Sequence[Tensor]], Any]:
        """What puts the value of a skeleton together. Those of a round's results are asked for again and again."""
        if skeleton not in self._makers:
            if len(self._makers) >= MAKERS:
                self._makers.clear()
            self._makers[skeleton] = maker(skeleton, self._classes)
        return self._makers[skeleton]
