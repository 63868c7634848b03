"""The gate: every update is checked before a method sees it, and refused with a reason when it fails.

Checked: a known task that was not answered before, the right class, names, shapes and types, finite numbers, a size
within the limit, and a declared number of examples that the client can have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from potluck.fleet import Message
from potluck.wire.codec import flatten, size


@dataclass(frozen=True)
class Expected:
    """What an honest answer to a task looks like: its skeleton and its tensors' shapes and types."""

    skeleton: str
    kinds: tuple[tuple[tuple[int, ...], str], ...]  # shapes and types
    nbytes: int
    sized: bool  # a leading axis follows the client's number of samples (raw data), so it may differ


def expected_of(update: Message, sized: bool = False) -> Expected:
    skeleton, tensors = flatten(update)
    return Expected(skeleton, tuple((tuple(t.shape), str(t.dtype)) for t in tensors), size(update), sized)


def refusal(update: Message, expected: Expected, samples: int, limit: int) -> str | None:
    """Why this update must not reach the method, or None when it may."""
    try:
        skeleton, tensors = flatten(update)
    except TypeError as error:
        return f"not a message: {error}"
    came = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    if came > limit:
        return f"{came} bytes, the limit is {limit}"
    if not expected.sized and skeleton != expected.skeleton:
        return f"other fields or names than the task asks for ({_shorten(skeleton)})"
    if len(tensors) != len(expected.kinds):
        return f"{len(tensors)} tensors, the task asks for {len(expected.kinds)}"
    for i, (tensor, (shape, dtype)) in enumerate(zip(tensors, expected.kinds, strict=True)):
        if str(tensor.dtype) != dtype:
            return f"tensor {i} is {tensor.dtype}, the task asks for {dtype}"
        if expected.sized:
            if tuple(tensor.shape[1:]) != shape[1:]:
                return f"tensor {i} has shape {tuple(tensor.shape)}, the task asks for (n, {str(shape[1:])[1:-1]})"
        elif tuple(tensor.shape) != shape:
            return f"tensor {i} has shape {tuple(tensor.shape)}, the task asks for {shape}"
    if not all(_finite(tensor) for tensor in tensors):
        return "numbers that are not finite"
    return _implausible(update, samples)


def _finite(tensor: Tensor) -> bool:
    if not tensor.is_floating_point():
        return True
    # A sum over finite numbers is nearly always finite, and a NaN or infinity never gives a finite one: one cheap
    # pass, looked at closely only when it is not.
    return bool(torch.isfinite(tensor.sum())) or bool(torch.isfinite(tensor).all())


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
