"""Samples of clients as stacks: padded to one length, and kept for the next round.

Padding and copying samples costs more than a short training step. With full participation each round needs the same
stacks again, so the newest ones are kept, up to 1 GiB. Of a fleet whose samples take more, none are: most would be
dropped before they are needed again, and memory that is new in each round costs more than copying. Asynchronous runs
hardly ever train the same clients together twice. Their stacks are copied row by row from the stacks that are kept,
which is still cheaper than padding the samples again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from potluck import compiled
from potluck.compiled.kept import keep
from potluck.fleet import Data
from potluck.wire.codec import walk

KEPT = 1 << 30  # bytes of stacked samples kept between rounds
Materialise = Callable[[Sequence[int], int], Data]  # (client indices, capacity) -> stacked padded data


def renamed(data: Data, labels: Sequence[tuple[int, ...] | None]) -> Data:
    """A stack of clients' data with new label numbers for those that have some (after a drift)."""
    if not any(labels):
        return data
    classes = max(len(names) for names in labels if names)
    table = torch.tensor([names or tuple(range(classes)) for names in labels])
    return replace(data, y=table.gather(1, data.y))


class SampleCache:
    """Stacks by client indices and capacity, the newest ones kept. Several threads may use it."""

    def __init__(self, materialise: Materialise, clients: int = 0) -> None:
        """`clients`: how many the fleet has, where that is known."""
        self._materialise = materialise
        self._clients = clients
        self._kept: OrderedDict[tuple[tuple[int, ...], int], Data] = OrderedDict()
        self._rows: dict[int, tuple[tuple[tuple[int, ...], int], int]] = {}  # client -> a kept stack, and the row in it
        self._bytes = 0

    def __call__(self, clients: Sequence[int], capacity: int) -> Data:
        key = (tuple(clients), capacity)
        with suppress(KeyError):
            self._kept.move_to_end(key)
            return self._kept[key]
        with suppress(KeyError):  # a client is in no kept stack, or another thread has just dropped it
            found = [self._rows[client] for client in clients]
            return _copied([(self._kept[kept], row) for kept, row in found], capacity)
        data = self._materialise(clients, capacity)
        size = data.x.numel() * data.x.element_size()
        if size <= KEPT // 4 and self._clients * size <= KEPT * len(clients):
            keep(data.x)
            self._kept[key] = data
            self._rows |= {client: (key, row) for row, client in enumerate(clients)}
            self._bytes += size
            while self._bytes > KEPT and self._kept:
                with suppress(KeyError):  # another thread may have dropped it already
                    _, dropped = self._kept.popitem(last=False)
                    self._bytes -= dropped.x.numel() * dropped.x.element_size()
        return data


def _copied(rows: Sequence[tuple[Data, int]], capacity: int) -> Data:
    """A new stack of these rows of other stacks, cut or padded to `capacity`."""
    sources = {id(source): source for source, _ in rows}
    stack: Data = walk(rows[0][0], lambda like: like.new_empty((len(rows), capacity, *like.shape[2:])))
    numbers = {name: number for number, name in enumerate(sources)}
    which = np.array([numbers[id(source)] for source, _ in rows])
    at = np.array([row for _, row in rows])
    for part in ("x", "y", "weight", "t", "length"):
        into = getattr(stack, part)
        if into is None:
            continue
        given = [getattr(source, part) for source in sources.values()]
        if compiled.ready() and all(_words(value) for value in given):
            begins, steps = (np.array([f(value) for value in given]) for f in (Tensor.data_ptr, _bytes_of_a_row))
            size = into.element_size() // 4
            room = into[0].numel() * size
            counts = steps // 4
            kernel = compiled.kernels("copying").copy
            kernel(begins[which] + at * steps[which], counts[which], into.data_ptr(), room)
            continue
        # As arrays: to take a row of a tensor takes as long as to copy the row.
        known = [value.numpy() for value in given]
        for mine, source, row in zip(into.numpy(), which.tolist(), at.tolist(), strict=True):
            value = known[source][row]
            mine[: len(value)] = value[:capacity]
            mine[len(value) :] = 0
    return stack if stack.length is None else replace(stack, length=stack.length.clamp_min(1))


def _words(value: Tensor) -> bool:
    """Whether rows can be copied as words of 32 bits."""
    return value.element_size() % 4 == 0 and value.is_contiguous() and value.device.type == "cpu"


def _bytes_of_a_row(value: Tensor) -> int:
    return value.stride(0) * value.element_size()
