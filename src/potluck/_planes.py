"""Maps between the tensors of a model and those of a narrower one, by compiled kernels (`potluck.compiled.planes`).

A tensor is planes of rows x columns, and every plane has a convolution kernel w = g v / |v| and a constant c, by names:
"conv1.weight/v", "/g", "/c". All tensors, and all free numbers, stand one after another in a row of float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from potluck.compiled import images, kernels, stack

Array = Any  # a float32 array of one axis
Size = tuple[int, int, int]  # planes, rows, columns


class Sizes(NamedTuple):
    """Of a tensor, and of the same tensor in the narrower model."""

    whole: Size
    part: Size


class Maps:
    """All tensors of a model by their kernels: from whole to part, or, where it `widens`, from part to whole."""

    def __init__(self, sizes: Mapping[str, Sizes], free: Mapping[str, Tensor], widens: bool, mlr: bool = False) -> None:
        self.sizes, self.widens, self.mlr = sizes, widens, mlr
        self.shapes = {name: tuple(value.shape) for name, value in free.items()}
        places, at = {}, 0
        for name, shape in self.shapes.items():
            places[name], at = at, at + prod(shape)
        self.free = at
        table, kernel, source, to = [], 0, 0, 0
        for name, (whole, part) in sizes.items():
            own = (places.get(f"{name}/{letter}", -1) for letter in "vgc")
            table.append([*whole, *part[1:], *own, kernel, source, to])
            kernel += prod(self.shapes[f"{name}/v"])
            source += prod(part if widens else whole)
            to += prod(whole if widens else part)
        self.made = to  # numbers that the maps make
        self._table = np.array(table, np.int64)
        self.kernel, self.spare = kernel, _spare(sizes) if widens else 1  # numbers that the kernels need room for
        self._none = np.zeros(1, np.float32)
        self._planes = kernels("planes")

    def size_of(self, name: str) -> Size:
        """Of what the maps make."""
        return self.sizes[name].whole if self.widens else self.sizes[name].part

    def packed(self, free: Mapping[str, Tensor]) -> Array:
        """The free numbers as a row: a copy."""
        return torch.cat([free[name].detach().flatten() for name in self.shapes]).numpy().copy()

    def unpacked(self, free: Array) -> dict[str, Tensor]:
        parts = torch.split(torch.from_numpy(free), [prod(shape) for shape in self.shapes.values()])
        return {name: part.reshape(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}

    def forward(self, free: Array, x: Array, base: Array | None) -> Array:
        """What the free numbers make of x, on top of `base` where the maps widen."""
        y = np.empty(self.made, np.float32)
        under = self._none if base is None else base
        room = np.empty(self.kernel, np.float32), np.empty(self.spare, np.float32)
        self._planes.forward(self._table, free, x, under, *room, y, self.widens, self.mlr)
        return y

    def backward(self, free: Array, x: Array, y: Array, slope: Array) -> Array:
        """The gradient by the free numbers; `slope`, that by y, is changed."""
        d = np.empty_like(free)
        self._planes.backward(self._table, free, x, y, slope, d, self.widens, self.mlr)
        return d

    def step(self, free: Array, first: Array, second: Array, d: Array, rate: float, taken: int) -> None:
        """One step of Adam, in place."""
        self._planes.adam(free, first, second, d, np.float32(rate), taken)

    def tune(
        self, slopes: images.Slopes, free: Array, first: Array, second: Array, given: Array, base: Array | None,
        rows: Tensor, counts: Tensor, at: Array, rates: Array, taken: int,
    ) -> None:  # fmt: skip
        """Steps of Adam of all members in one call: rows of `free` and of its moments, which change in place.

        Each of S steps has rows and counts (S, B), a rate, and the row of `given` that its map is put on, -1 for the
        member's own.
        """
        under = self._none if base is None else base
        room = self.kernel, self.spare
        slopes.tune(
            len(free), rows.numpy(), counts.numpy(), self._table, self.widens, self.mlr, *room, given, under, free,
            first, second, at, rates, taken,
        )  # fmt: skip


def _spare(sizes: Mapping[str, Sizes]) -> int:
    """Of a part within borders of zeros, and of its kernel."""
    room = 1
    for (_, rows, columns), (_, r, c) in sizes.values():
        a, b = rows - r + 1, columns - c + 1
        room = max(room, (r + 2 * (a - 1)) * (c + 2 * (b - 1)) + a * b)
    return room


def fits(*values: Tensor) -> bool:
    """Whether kernels can be used for these."""
    return stack.fits(*values)
