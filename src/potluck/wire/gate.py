"""The gate: every update is checked before a method sees it, and refused with a reason when it fails.

Checked: a known task that was not answered before, the right class, names, shapes and types, finite numbers, a size
within the limit, and a declared number of examples that the client can have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from potluck.fleet import Message
from potluck.wire.codec import flatten


@dataclass(frozen=True)
class Expected:
    """What an honest answer to a task looks like: its skeleton and its tensors' shapes and types."""

    skeleton: str
    kinds: tuple[tuple[tuple[int, ...], str], ...]  # shapes and types
    sized: bool  # a leading axis follows the client's number of samples (raw data), so it may differ


@dataclass(frozen=True)
class Seen:
    """What an update turned out to be. Updates of one stack share all of it but `finite`."""

    skeleton: str
    kinds: tuple[tuple[tuple[int, ...], str], ...]
    nbytes: int
    finite: bool


def kinds_of(tensors: Sequence[Tensor], drop: int = 0) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Shapes, without the first `drop` axes, and types."""
    return tuple((tuple(tensor.shape[drop:]), str(tensor.dtype)) for tensor in tensors)


def expected_of(update: Message, sized: bool = False) -> Expected:
    skeleton, tensors = flatten(update)
    return Expected(skeleton, kinds_of(tensors), sized)


def look(update: Message) -> Seen:
    skeleton, tensors = flatten(update)
    nbytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    return Seen(skeleton, kinds_of(tensors), nbytes, all(bool(finite(tensor[None])) for tensor in tensors))


def finite(stack: Tensor) -> Tensor:
    """For each row of a stack whether all its numbers are finite."""
    if not stack.is_floating_point():
        return torch.ones(stack.shape[0], dtype=torch.bool)
    # A sum over finite numbers is nearly always finite, and a NaN or infinity never gives a finite one: one cheap
    # pass, looked at closely only where it is not.
    rows = stack.reshape(stack.shape[0], -1)
    good = torch.isfinite(rows.sum(1))
    return good if bool(good.all()) else good | torch.isfinite(rows).all(1)


def refusal(update: Message, seen: Seen, expected: Expected, samples: int, limit: int) -> str | None:
    """Why this update must not reach the method, or None when it may."""
    if seen.nbytes > limit:
        return f"{seen.nbytes} bytes, the limit is {limit}"
    wrong = _other_shape(seen, expected)
    if wrong is not None:
        return wrong
    if not seen.finite:
        return "numbers that are not finite"
    return _implausible(update, samples)


def _other_shape(seen: Seen, expected: Expected) -> str | None:
    if seen.skeleton != expected.skeleton and not expected.sized:
        return f"other fields or names than the task asks for ({_shorten(seen.skeleton)})"
    if len(seen.kinds) != len(expected.kinds):
        return f"{len(seen.kinds)} tensors, the task asks for {len(expected.kinds)}"
    if seen.kinds == expected.kinds:
        return None
    for i, ((shape, dtype), (wanted, wanted_dtype)) in enumerate(zip(seen.kinds, expected.kinds, strict=True)):
        if dtype != wanted_dtype:
            return f"tensor {i} is {dtype}, the task asks for {wanted_dtype}"
        if expected.sized and shape[1:] != wanted[1:]:
            return f"tensor {i} has shape {shape}, the task asks for (n, {str(wanted[1:])[1:-1]})"
        if not expected.sized and shape != wanted:
            return f"tensor {i} has shape {shape}, the task asks for {wanted}"
    return None


def _implausible(update: Any, samples: int) -> str | None:
    declared = getattr(update, "examples", None)
    if declared is None:
        return None
    count = float(declared)
    if count < 0 or count > samples:
        return f"{count:g} examples declared, the client has {samples}"
    return None


def _shorten(text: str) -> str:
    return text if len(text) <= 120 else text[:117] + "..."
