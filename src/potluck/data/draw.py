"""Clients whose rows are drawn on demand: a million clients need no more memory than the pool.

A client's rows are a keyed permutation of the pool evaluated at 0, 1, 2, ...: distinct within the client,
independent between clients, the same at every call. The permutation is a Feistel network over
the next power of four with cycle walking (Black and Rogaway, CT-RSA 2002), its rounds the finaliser of
SplitMix64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from potluck import compiled
from potluck.data.dataset import Ints
from potluck.data.partition import class_sets
from potluck.data.spec import PartitionSpec
from potluck.errors import BadInput, Code
from potluck.keys import number, rng

Words = npt.NDArray[np.uint64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = [np.uint64(step * 0x9E3779B97F4A7C15 % (1 << 64)) for step in range(1, 5)]
WORTH = 1024  # numbers; NumPy is quick with fewer, and nobody waits until kernels are loaded


def _mix(z: Words) -> Words:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def distinct(keys: Words, count: int, pool: int) -> Ints:
    """Draw for each key `count` different numbers below `pool`, in random order: shape (keys, count)."""
    half = _half(pool)
    shift, mask = np.uint64(half), np.uint64((1 << half) - 1)
    value = np.broadcast_to(np.arange(count, dtype=np.uint64), (len(keys), count)).copy()
    key = np.broadcast_to(keys[:, None], value.shape)
    outside = np.ones(value.shape, dtype=bool)
    while outside.any():  # cycle walking: at most four steps on average, since the domain is less than 4 * pool + 4
        v, k = value[outside], key[outside]
        left, right = v >> shift, v & mask
        for constant in _ROUNDS:
            left, right = right, left ^ (_mix((k ^ right) + constant) & mask)
        value[outside] = (left << shift) | right
        outside = value >= pool
    return value.astype(np.int64)


def _half(pool: int) -> int:
    """Bits of half a number of the permutation over at least `pool` numbers."""
    return max(1, (max(pool - 1, 1).bit_length() + 1) // 2)


def taken(keys: Words, count: int, pool: Ints) -> Ints:
    """`distinct` rows of a pool: many are drawn by a compiled kernel."""
    if len(keys) * count < WORTH or not compiled.ready():
        return np.take(pool, distinct(keys, count, len(pool)))
    found = np.empty((len(keys), count), np.int64)
    compiled.kernels("gathering").draw(keys, count, _half(len(pool)), pool, found)
    return found


@dataclass(frozen=True)
class Drawn:
    """Draws the rows of each part ("train", "test", "valid") from the pool of that part: no row is in two parts."""

    spec: PartitionSpec
    seed: int
    classes: int
    pools: Mapping[str, Ints]
    counts: Mapping[str, int]
    labels: Ints  # of every row of the dataset

    def __post_init__(self) -> None:
        for part, count in self.counts.items():
            there = len(self.pools[part])
            if count > there:
                raise BadInput(
                    Code.PARTITION_ROWS,
                    f"partition.samples: {count} {part} rows per client are needed, but the data has {there}.",
                )

    def padded(self, ids: Ints, part: str, capacity: int) -> Ints:
        """Return rows (clients, capacity) of the dataset; columns beyond a client's count are arbitrary rows."""
        count = self.counts[part]
        block = np.zeros((len(ids), max(capacity, count)), dtype=np.int64)
        if count:
            block[:, :count] = self._iid(ids, part) if self.spec.kind == "iid" else self._mixed(ids, part)
        return block[:, :capacity]

    def rows(self, i: int, part: str) -> Ints:
        return self.padded(np.array([i]), part, self.counts[part]).reshape(-1)

    def _iid(self, ids: Ints, part: str) -> Ints:
        base = np.uint64(number(self.seed, "draw", part) & ((1 << 64) - 1))
        keys = _mix(base + (ids.astype(np.uint64) + np.uint64(1)) * _GOLDEN)
        return taken(keys, self.counts[part], self.pools[part])

    def _mixed(self, ids: Ints, part: str) -> Ints:
        """Draw the mix of classes of each client first, then rows class by class."""
        by_class, count = self._by_class[part], self.counts[part]
        here = np.array([len(rows) > 0 for rows in by_class])
        block = np.empty((len(ids), count), dtype=np.int64)
        for row, i in zip(block, ids.tolist(), strict=True):
            mix = np.where(here, self._mix_of(i), 0.0)
            mix = mix / mix.sum() if mix.sum() > 0 else here / here.sum()
            draw = rng(self.seed, "draw", part, i)
            per_class = draw.multinomial(count, mix)
            row[:] = np.concatenate(
                [
                    draw.choice(rows, n, replace=n > len(rows))  # a class that is too small gives rows twice
                    for rows, n in zip(by_class, per_class.tolist(), strict=True)
                    if n
                ]
            )
        return block

    @cached_property
    def _by_class(self) -> dict[str, list[Ints]]:
        return {part: [pool[self.labels[pool] == c] for c in range(self.classes)] for part, pool in self.pools.items()}

    def _mix_of(self, i: int) -> npt.NDArray[np.float64]:
        draw = rng(self.seed, "mix", i)
        if self.spec.kind == "dirichlet":
            return draw.dirichlet(np.full(self.classes, self.spec.alpha))
        held = class_sets(1, self.classes, self.spec.classes_per_client, draw)
        return np.asarray(held[0], dtype=np.float64) / self.spec.classes_per_client
