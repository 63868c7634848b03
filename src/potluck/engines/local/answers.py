"""The answers of a round that was computed as stacks: taken apart only where somebody asks for one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from potluck._merging import Rows
from potluck.engines.results import Together
from potluck.fleet import Arrival, ClientId


class Answers(Sequence[Arrival]):
    """Accepted updates, in the order in which they were asked for. `places` (K, 2) has the stack and row of each."""

    def __init__(
        self,
        names: Sequence[ClientId],
        first: int,
        sent: float,
        moments: NDArray[np.float64],
        stacks: Sequence[Together],
        places: NDArray[np.int64],
        sharing: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._names = names
        self._first = first
        self._sent = sent
        self._moments = moments
        self._stacks = stacks
        self._places = places
        self._sharing = sharing
        self._found: Sequence[Arrival] | None = None

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, at: int) -> Arrival: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Arrival]: ...
    def __getitem__(self, at: int | slice) -> Arrival | Sequence[Arrival]:
        return self._arrivals()[at]

    def column(self, name: str) -> Sequence[Any]:
        """One field of all updates: models as rows of stacks, numbers as one tensor, anything else as it is."""
        fields = [stack.field(name) for stack in self._stacks]
        if all(isinstance(field, dict) for field in fields):
            return Rows([field for field in fields if isinstance(field, dict)], self._places, self._sharing)
        numbers = [field for field in fields if isinstance(field, Tensor) and field.dim() == 1]
        if len(numbers) < len(fields):
            return [getattr(arrival.update, name) for arrival in self._arrivals()]
        row: Any = torch.cat(numbers)[self._flat()]
        return row  # type: ignore[no-any-return]

    def _flat(self) -> Tensor:
        """The place of each update in all stacks one after another."""
        begin = np.cumsum([0, *(len(stack.own) for stack in self._stacks)])
        return torch.from_numpy(begin[self._places[:, 0]] + self._places[:, 1])

    def _arrivals(self) -> Sequence[Arrival]:
        if self._found is None:
            updates = [stack.column(0) for stack in self._stacks]
            self._found = [
                arrival_of(name, updates[stack][row], task, self._sent, at)
                for task, (name, (stack, row), at) in enumerate(
                    zip(self._names, self._places.tolist(), self._moments.tolist(), strict=True), self._first
                )
            ]
        return self._found


def arrival_of(client: ClientId, update: Any, task: int, sent: float, at: float) -> Arrival:
    """An `Arrival`, without the `__init__` of a frozen class, which takes four times as long."""
    arrival = object.__new__(Arrival)
    arrival.__dict__.update(client=client, update=update, task=task, sent=sent, at=at)
    return arrival
