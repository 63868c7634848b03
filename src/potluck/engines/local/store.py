"""Private state of the clients: in memory while it fits; what was unused the longest goes to one file on disk."""

from __future__ import annotations

import tempfile
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import torch

from potluck.wire.codec import decode, encode, flatten, walk


class Store:
    """Client index -> a tree of tensors. Values are copied, so that the stacks they come from can be freed."""

    def __init__(self, classes: Mapping[str, type], budget: int = 2 << 30, folder: Path | None = None) -> None:
        self._classes = classes
        self._budget = budget
        self.folder = folder
        self._here: OrderedDict[int, tuple[Any, int]] = OrderedDict()
        self._bytes = 0
        self._file: IO[bytes] | None = None
        self._slots: dict[int, tuple[int, int, int]] = {}  # client -> offset, used, room
        self._end = 0

    def __len__(self) -> int:
        return len(self._here) + len(self._slots.keys() - self._here.keys())

    def __bool__(self) -> bool:
        return bool(self._here or self._slots)

    def __contains__(self, client: int) -> bool:
        return client in self._here or client in self._slots

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._here.keys() | self._slots.keys()))

    def get(self, client: int, default: Any = None) -> Any:
        if client in self._here:
            self._here.move_to_end(client)
            return self._here[client][0]
        if client in self._slots:
            assert self._file is not None
            offset, used, _ = self._slots[client]
            self._file.seek(offset)
            return decode(self._file.read(used), self._classes)
        return default

    def put(self, client: int, value: Any) -> None:
        value = walk(value, lambda tensor: tensor.detach().clone(memory_format=torch.contiguous_format))
        if client in self._here:
            self._bytes -= self._here.pop(client)[1]
        nbytes = sum(tensor.numel() * tensor.element_size() for tensor in flatten(value)[1])
        self._here[client] = (value, nbytes)
        self._bytes += nbytes
        while self._bytes > self._budget and len(self._here) > 1:
            oldest, (spilled, freed) = self._here.popitem(last=False)
            self._bytes -= freed
            self._spill(oldest, spilled)

    def _spill(self, client: int, value: Any) -> None:
        if self._file is None:
            # A scratch file without a name: it vanishes with the process. Checkpoints hold what must survive.
            self._file = tempfile.TemporaryFile(dir=self.folder, prefix="private-")  # noqa: SIM115
            weakref.finalize(self, self._file.close)
        data = encode(value)
        offset, _, room = self._slots.get(client, (0, 0, 0))
        if room < len(data):
            offset, room = self._end, len(data)
            self._end += room
        self._file.seek(offset)
        self._file.write(data)
        self._slots[client] = (offset, len(data), room)
