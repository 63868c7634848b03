"""A client's samples as a board keeps them."""

from __future__ import annotations

import zlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Shelf:
    """A client's samples in the layout of a board's flash."""

    data: bytes
    train: int
    valid: int

    @property
    def crc(self) -> int:
        return zlib.crc32(self.data)
