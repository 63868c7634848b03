"""Randomness as a pure function of a key: the same key gives the same draw, for one client or in a stack.

A key is a 64-bit integer made from (seed, client, task number, purpose). Numbers come from hashing key + counter
(the finaliser of SplitMix64, Steele et al., OOPSLA 2014) with ordinary tensor arithmetic, so a client program may draw
inside `torch.func.vmap`. A task that runs later, on another machine or again gives the same bits: there is no state.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from operator import index

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from potluck import compiled

SEPARATOR = "\x1f"
MANY = 32  # texts to hash; for fewer, to hand them to a kernel takes longer
_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)  # as signed 64-bit, the type torch has
_MIX_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_2 = 0x94D049BB133111EB - (1 << 64)
# torch shifts are arithmetic: drop the sign bits
_MASK = {27: (1 << 37) - 1, 30: (1 << 34) - 1, 31: (1 << 33) - 1}


def number(*parts: int | str) -> int:
    """Hash the parts, in their order, to a signed 64-bit integer."""
    # Two of these run for every task: a list and a short way for plain integers are faster than `_distinct` for each.
    text = "\x1f".join([f"int:{part}" if type(part) is int else _distinct(part) for part in parts])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def _distinct(part: int | str) -> str:
    """Tell 1 from "1", treat NumPy's 1 like 1, and escape a separator inside a text."""
    return "str:" + part.replace(SEPARATOR, 2 * SEPARATOR) if isinstance(part, str) else f"int:{index(part)}"


def numbers(first: int, names: Sequence[str], third: Sequence[int], *last: int | str) -> NDArray[np.int64]:
    """`number(first, name, one of the third, last)` of many names at once, with the same bits: a row for each last."""
    row = "".join(names)
    if SEPARATOR in row:
        names = [name.replace(SEPARATOR, 2 * SEPARATOR) for name in names]
        row = "".join(names)
    begin, between = f"int:{first}\x1fstr:", "\x1fint:"
    ends = [f"\x1f{_distinct(part)}" for part in last]
    if len(names) >= MANY and row.isascii() and compiled.ready():
        lengths = np.fromiter(map(len, names), np.int64, len(names))
        kernels = compiled.kernels("hashes")
        if sum(map(len, (begin, between, *ends))) + lengths.max() + kernels.DIGITS <= kernels.BLOCK:
            found = np.empty((len(ends), len(names)), np.int64)
            given, middle = _bytes(begin), _bytes(between)
            for end, into in zip(ends, found, strict=True):
                kernels.digests(given, _bytes(row), lengths, middle, np.asarray(third, np.int64), _bytes(end), into)
            return found
    draw = hashlib.blake2b
    texts = [f"{begin}{name}{between}{n}" for name, n in zip(names, third, strict=True)]
    digests = [draw((text + end).encode(), digest_size=8).digest() for end in ends for text in texts]
    return np.frombuffer(b"".join(digests), dtype="<i8").reshape(len(ends), len(names))


def _bytes(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(bytearray(text.encode()), np.uint8)  # kernels take what can be written


def shares(base: int, count: int) -> list[float]:
    """Draw `count` uniform numbers in [0, 1) in plain Python: cheap enough for every task of a large fleet."""
    word, mask = base & ((1 << 64) - 1), (1 << 64) - 1
    draws = []
    for _ in range(count):
        word = (word + 0x9E3779B97F4A7C15) & mask
        z = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        draws.append(((z ^ (z >> 31)) >> 11) / (1 << 53))
    return draws


def shares_of(bases: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """`shares` of many numbers at once, with the same bits: one row for each draw."""
    words = bases.view(np.uint64) + np.arange(1, count + 1, dtype=np.uint64)[:, None] * np.uint64(0x9E3779B97F4A7C15)
    z = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    draws: NDArray[np.float64] = ((z ^ (z >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return draws


def key(*parts: int | str) -> Tensor:
    return torch.tensor(number(*parts), dtype=torch.int64)


def rng(*parts: int | str) -> np.random.Generator:
    """Make a NumPy generator for set-up work: partitions, fleets, splits."""
    return np.random.Generator(np.random.Philox(key=number(*parts) & ((1 << 64) - 1)))


def _mix(z: Tensor) -> Tensor:
    z = (z ^ ((z >> 30) & _MASK[30])) * _MIX_1
    z = (z ^ ((z >> 27) & _MASK[27])) * _MIX_2
    return z ^ ((z >> 31) & _MASK[31])


def fold(key: Tensor, *parts: int | str | Tensor) -> Tensor:
    """Make a new key from a key and more parts; a part may be a tensor of integers, also inside a stack."""
    for part in parts:
        step: int | Tensor = part if isinstance(part, Tensor) else number(part)
        key = _mix((key ^ step) + _GOLDEN)
    return key


def _bits(key: Tensor, shape: Sequence[int]) -> Tensor:
    return _mix(key + _counter(math.prod(shape))).reshape(tuple(shape))


def _counter(count: int) -> Tensor:
    return torch.arange(1, count + 1, dtype=torch.int64).mul_(_GOLDEN)


def uniform(key: Tensor, shape: Sequence[int] = ()) -> Tensor:
    """Draw float32 in [0, 1)."""
    top = (_bits(key, shape) >> 40) & ((1 << 24) - 1)
    return top.to(torch.float32) * (1.0 / (1 << 24))


def normal(key: Tensor, shape: Sequence[int] = ()) -> Tensor:
    """Draw standard normal float32 by Box and Muller's transform."""
    radius = torch.sqrt(-2.0 * torch.log1p(-uniform(fold(key, 1), shape)))
    return radius * torch.cos(2.0 * math.pi * uniform(fold(key, 2), shape))


def bernoulli(key: Tensor, probability: Tensor) -> Tensor:
    """Draw 0 or 1 as float32 with these probabilities of 1."""
    return (uniform(key, probability.shape) < probability).to(torch.float32)


def permutation(key: Tensor, n: int, weight: Tensor | None = None) -> Tensor:
    """Draw a random order of 0..n-1; positions with weight 0 come last. A stack of keys draws a stack of orders."""
    draw = _mix(key.unsqueeze(-1) + _counter(n)) >> 1  # room for the offset below without overflow
    if weight is not None:
        draw = torch.where(weight > 0, draw >> 1, (draw >> 1) + (1 << 62))
    return torch.argsort(draw, stable=True)
