"""Numbers as integers modulo 2^32. Their sum is exact, in any order, as long as it stays inside the range."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from potluck.errors import Code, must_be

FEWEST = 8  # bits behind the point


@dataclass(frozen=True)
class Fixed:
    """How a number in [-largest, largest] is written, so that the sum of `terms` of them cannot wrap."""

    largest: float
    terms: int

    def __post_init__(self) -> None:
        if self.bits < FEWEST:
            most = 2.0 ** (31 - FEWEST) / max(1, self.terms)
            raise must_be(
                Code.SECURE_SUM, "secure.largest", f"at most {most:.3g} for {self.terms} clients", f"{self.largest:g}"
            )

    @property
    def bits(self) -> int:
        """Bits behind the point."""
        return 30 - max(0, math.ceil(math.log2(self.largest * max(1, self.terms))))

    def write(self, values: NDArray[np.floating]) -> NDArray[np.uint32]:
        """The numbers in fixed point, rounded to the nearest; larger ones are cut."""
        cut = np.clip(np.nan_to_num(np.asarray(values, dtype=np.float64)), -self.largest, self.largest)
        return np.rint(np.ldexp(cut, self.bits)).astype(np.int64).astype(np.uint32)

    def read(self, total: NDArray[np.uint32]) -> NDArray[np.float64]:
        """A sum back as numbers."""
        return np.ldexp(total.astype(np.int32).astype(np.float64), -self.bits)
