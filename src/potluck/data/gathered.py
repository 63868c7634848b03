"""Samples of many clients gathered and standardised by compiled kernels, with the bits of `standardise.py`.

NumPy goes through all samples once for each step: to take rows, to scale bytes, to sum, to subtract, to multiply.
Kernels take a few clients through all steps while their samples are in cache. The workers of a run share the clients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from potluck import compiled
from potluck.data.dataset import Array, Dataset, Ints

Floats = npt.NDArray[np.float32]
Statistics = tuple[Floats, Floats]  # mean and one over the standard deviation, by channel
WORTH = 1 << 17  # numbers; NumPy is quick with fewer, and nobody waits until kernels are loaded
AT_ONCE = 1 << 19  # numbers of some clients that stay in cache
BYTE = np.float32(1 / 255)


def worth(numbers: int) -> bool:
    """Whether kernels can be used, and so many numbers are worth it."""
    return numbers >= WORTH and compiled.ready()


def spread(per_channel: Floats, shape: tuple[int, ...], axis: int) -> Floats:
    """Statistics (K, channels) for each place of a sample: (K, 1, places)."""
    axes = [1] * len(shape)
    axes[axis] = per_channel.shape[1]
    whole = np.broadcast_to(per_channel.reshape(-1, *axes), (len(per_channel), *shape))
    return whole.reshape(len(per_channel), 1, -1)


def finished(mean: Array, variance: Array) -> Statistics:
    """Return mean and 1/deviation. A constant channel is only centred, so that its rounding noise does not grow."""
    deviation = np.sqrt(variance)
    deviation = np.where(deviation > 1e-7 * np.abs(mean), deviation, 1.0)
    return mean.astype(np.float32), (1.0 / deviation).astype(np.float32)


class Gathering:
    """The rows of a dataset as kernels read them."""

    def __init__(self, data: Dataset) -> None:
        self._data = data
        self._shape = data.sample_shape
        self._size = math.prod(self._shape)
        self._axis = 0 if data.kind == "image" else -1
        self._channels = self._shape[self._axis]

    def able(self, rows: Ints) -> bool:
        """Whether kernels read this dataset, and so many rows are worth it."""
        return worth(rows.size * self._size) and self._readable

    @cached_property
    def _readable(self) -> bool:
        x = self._data.x
        # NumPy sums a single column in another order than many.
        return (
            x.dtype in (np.float32, np.uint8)
            and x.dtype.isnative
            and x.flags.c_contiguous
            and x.flags.aligned
            and self._size > 1
        )

    @cached_property
    def _lengths(self) -> Ints:
        length = self._data.length
        return np.zeros(0, np.int64) if length is None else np.ascontiguousarray(length, dtype=np.int64)

    def __call__(
        self, rows: Ints, counts: Ints, known: Sequence[Statistics | None]
    ) -> tuple[Floats, dict[int, Statistics]]:
        """Samples (K, capacity, ...) of clients with these rows, and the statistics that were not known, by place.

        `known` has those of each client, None for those that come from these rows; or those of all; or nothing.
        """
        kernels, size, clients = compiled.kernels("gathering"), self._size, len(rows)
        rows, counts = (np.ascontiguousarray(value, dtype=np.int64) for value in (rows, counts))
        x = np.empty((*rows.shape, *self._shape), np.float32)
        data, source, at = self._data, self._data.x.ctypes.data, x.ctypes.data
        colours = self._channels if data.channels_last else 1
        factor = BYTE if data.kind == "image" else np.float32(1)
        bytewise = data.x.dtype == np.uint8
        few = max(1, AT_ONCE // max(1, rows.shape[1] * size))
        learned: dict[int, Statistics] = {}
        ended = self._lengths, self._channels, data.missing

        def some(begin: int, end: int) -> None:
            for a in range(begin, end, few):
                b = min(a + few, end)
                kernels.gather(a, b, source, bytewise, factor, size, colours, rows, counts, at)
                found = self._statistics(kernels, at, rows, counts, known, a, b, learned)
                if found is not None or data.missing or len(self._lengths):
                    mean, scale = self._NOTHING if found is None else found
                    kernels.standardise(a, b, at, size, rows, counts, *ended, found is not None, mean, scale)

        compiled.spread(clients, some)
        return x, learned

    _NOTHING = np.zeros((1, 0), np.float32), np.zeros((1, 0), np.float32)

    def _statistics(
        self, kernels: Any, x: int, rows: Ints, counts: Ints, known: Sequence[Statistics | None], begin: int, end: int,
        learned: dict[int, Statistics],
    ) -> Statistics | None:  # fmt: skip
        """Mean and scale (K or 1, places) of the clients from `begin` to `end`; None if nothing is standardised."""
        if not known:
            return None
        given = list(known[begin:end]) if len(known) == len(rows) else list(known)
        new = [k for k, one in enumerate(given) if one is None]
        if new:
            which = np.array(new) + begin
            mean, scale = self._learned(kernels, x, which, rows, counts)
            for k, *one in zip(new, mean, scale, strict=True):
                given[k] = learned[begin + k] = one[0], one[1]
        mean, scale = (np.stack([one[part] for one in given if one is not None]) for part in (0, 1))
        return self._spread(mean), self._spread(scale)

    def _learned(self, kernels: Any, x: int, which: Ints, rows: Ints, counts: Ints) -> Statistics:
        """The statistics of some clients' samples, which are gathered already."""
        shape, size = (len(which), self._size), self._size
        total, valid, none = np.empty(shape), np.empty(shape, np.int64), np.zeros((1, 0), np.float32)
        given = which, x, size, rows, counts, self._lengths, self._channels, self._data.missing
        kernels.sums(*given, False, none, total, valid)
        if self._data.missing or len(self._lengths):
            count = np.maximum(self._fold(valid), 1)
        else:
            count = np.maximum(counts[which] * size // self._channels, 1)[:, None]
        mean = self._fold(total) / count
        kernels.sums(*given, True, self._spread(mean.astype(np.float32)), total, valid)
        return finished(mean, self._fold(total) / count)

    def _spread(self, per_channel: Floats) -> Floats:
        return np.array(spread(per_channel, self._shape, self._axis)[:, 0])  # kernels take none that is read-only

    def _fold(self, per_place: Array) -> Array:
        """Sum over all axes of each sample but its channels."""
        clients = len(per_place)
        if self._axis == 0:
            return np.asarray(per_place.reshape(clients, self._channels, -1).sum(axis=2))
        return np.asarray(per_place.reshape(clients, -1, self._channels).sum(axis=1))
