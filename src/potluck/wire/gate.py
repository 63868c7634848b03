"""The check of every update before a method sees it. An update that fails is refused, with a reason.

An update must answer a known task that was not answered before, with the right class, names, shapes and types, with
finite numbers, and within the size limit. Its `examples`, if it has that field, must not exceed the client's samples,
and must not be 0 unless the update's class says `MAY_BE_EMPTY`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from potluck.errors import BadInput, Code
from potluck.fleet import Message
from potluck.wire.codec import Kinds, flatten, kinds_of

LARGEST = 2**53  # of a number outside the tensors; a larger one has no exact float
HUGE = 1e15  # the largest norm of a tensor: servers square and add what they get, and float32 ends at 3.4e38
LONGEST = 1000  # characters of a text


@dataclass(frozen=True)
class Expected:
    """What a valid answer to a task looks like."""

    form: str  # the skeleton, with "a number" or "a text" for every number and text
    kinds: Kinds  # shapes and types; -1 for an axis as long as the client's data


@dataclass(frozen=True)
class Seen:
    """What an update looks like. Updates of one stack differ in `finite` and `sizes` only."""

    skeleton: str
    kinds: Kinds
    nbytes: int
    finite: bool
    sizes: tuple[float, ...] | None = None  # of its changes (`wire.bound`), where they were measured with the stack


def expected_of(update: Message, of_twice_the_data: Message | None = None) -> Expected:
    """What answers like this one look like: other numbers, and other lengths of the axes that follow the data."""
    skeleton, tensors = flatten(update)
    kinds = kinds_of(tensors)
    if of_twice_the_data is not None:
        others = kinds_of(flatten(of_twice_the_data)[1])
        kinds = tuple((_free(shape, other), dtype) for (shape, dtype), (other, _) in zip(kinds, others, strict=True))
    return Expected(_formed(skeleton)[0], kinds)


def _free(shape: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a if a == b else -1 for a, b in zip(shape, other, strict=True))


@lru_cache(maxsize=1024)
def _formed(skeleton: str) -> tuple[str, bool]:
    """The form of a skeleton, and whether all its numbers are finite, not enormous, and its texts printable."""
    odd: list[Any] = []

    def form(node: Any) -> Any:
        if not isinstance(node, list):
            if isinstance(node, int | float) and abs(node) > LARGEST:
                odd.append(node)
            if isinstance(node, str) and (len(node) > LONGEST or not node.isprintable()):
                odd.append(node)
            kinds = {bool: "true or false", int: "a number", float: "a number", str: "a text"}
            return kinds.get(type(node))
        tag, body = node[0], node[1]
        if tag == "x":
            return node
        if tag == "f":
            odd.append(body)
            return "a number"
        if tag == "d":
            return [tag, [[name, form(item)] for name, item in body]]
        if tag == "c":
            return [tag, body, [form(item) for item in node[2]]]
        return [tag, [form(item) for item in body]]

    return json.dumps(form(json.loads(skeleton)), separators=(",", ":")), not odd


def inspect(update: Message) -> Seen:
    """Collect what `refusal` must know of an update."""
    skeleton, tensors = flatten(update)
    nbytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    return Seen(skeleton, kinds_of(tensors), nbytes, all(bool(finite(_distinct(tensor)[None])) for tensor in tensors))


def _distinct(tensor: Tensor) -> Tensor:
    """Drop axes of stride 0, along which one number is repeated: an update may claim more bytes than memory has."""
    if 0 not in tensor.stride() or tensor.numel() == 0:
        return tensor
    return tensor[tuple(0 if step == 0 else slice(None) for step in tensor.stride())]


def finite(stack: Tensor, squares: Tensor | None = None) -> Tensor:
    """For each row of a stack, whether all its numbers are finite, and its norm is not enormous.

    `squares` are the squared norms of the rows, where they are known.
    """
    if squares is not None:
        return squares < HUGE * HUGE
    if not stack.is_floating_point() or stack.numel() == 0:
        return torch.ones(stack.shape[0], dtype=torch.bool)
    rows = stack.reshape(stack.shape[0], -1)
    # One pass: the norm of a row with a NaN or an infinity is none, whatever else is in it. Numbers of less than 32
    # bits are added as those of 32.
    norms: Tensor = torch.linalg.vector_norm(rows.float() if rows.element_size() < 4 else rows, dim=1)
    return norms < HUGE


def refusal(update: Message, seen: Seen, expected: Expected, samples: int, limit: int) -> BadInput | None:
    """Why this update must not reach the method, or None when it may."""
    if seen.nbytes > limit:
        return too_large(seen.nbytes, limit)
    wrong = _other_shape(seen, expected)
    if wrong is not None:
        return BadInput(Code.UPDATE_FORM, wrong)
    if not seen.finite or not _formed(seen.skeleton)[1]:
        return BadInput(Code.UPDATE_FINITE, _odd(update, seen))
    return implausible(update, samples)


def formed(seen: Seen, expected: Expected, limit: int) -> bool:
    """Whether `refusal` has nothing against what an update looks like. That leaves its `examples`."""
    usual = seen.nbytes <= limit and _other_shape(seen, expected) is None
    return usual and seen.finite and _formed(seen.skeleton)[1]


def _odd(update: Message, seen: Seen) -> str:
    all_finite = all(bool(torch.isfinite(_distinct(one).double()).all()) for one in flatten(update)[1])
    return "numbers that are enormous" if not seen.finite and all_finite else "numbers that are not finite"


def cap_examples(update: Message, most: float) -> Message:
    """The update with at most so many `examples`; the same object where it claims no more."""
    declared = getattr(update, "examples", None)
    if declared is None:
        return update
    count = float(declared.sum()) if isinstance(declared, Tensor) else float(declared)
    if count <= most:
        return update
    cut = declared * (most / count) if not isinstance(declared, Tensor) else (declared.double() * (most / count))
    return replace(update, examples=cut.to(declared.dtype) if isinstance(declared, Tensor) else type(declared)(cut))


def too_large(nbytes: int, limit: int) -> BadInput:
    return BadInput(Code.UPDATE_SIZE, f"{nbytes} bytes, the limit is {limit}")


def repeated() -> BadInput:
    return BadInput(Code.UPDATE_REPEATED, "answered before")


def _other_shape(seen: Seen, expected: Expected) -> str | None:
    if _formed(seen.skeleton)[0] != expected.form:
        return f"other fields or names than the task asks for ({_shorten(seen.skeleton)})"
    if len(seen.kinds) != len(expected.kinds):
        return f"{len(seen.kinds)} tensors, the task asks for {len(expected.kinds)}"
    if seen.kinds == expected.kinds:
        return None
    for i, ((shape, dtype), (wanted, wanted_dtype)) in enumerate(zip(seen.kinds, expected.kinds, strict=True)):
        if dtype != wanted_dtype:
            return f"tensor {i} is {dtype}, the task asks for {wanted_dtype}"
        if len(shape) != len(wanted) or any(b not in (-1, a) for a, b in zip(shape, wanted, strict=True)):
            return f"tensor {i} has shape {shape}, the task asks for {str(wanted).replace('-1', 'n')}"
    return None


def implausible(update: Any, samples: int) -> BadInput | None:
    """Why the `examples` of an update are not believed, or None."""
    declared = getattr(update, "examples", None)
    if declared is None:
        return None
    if isinstance(declared, Tensor) and declared.numel() > 1:  # for example one count per class
        count, least = float(declared.sum()), float(declared.min())
    else:
        count = least = float(declared)
    none = samples and not count and not getattr(type(update), "MAY_BE_EMPTY", False)
    if none or not (least >= 0 and count <= samples):
        return BadInput(Code.UPDATE_EXAMPLES, f"{count:g} examples declared, the client has {samples}")
    return None


def all_plausible(like: Any, declared: Any, samples: Sequence[int]) -> bool:
    """Whether `implausible` has nothing against any update of a stack; False also where that takes a closer look.

    `like` is one of them, and `declared` their `examples`, stacked.
    """
    if getattr(like, "examples", None) is None:
        return True
    if not isinstance(declared, Tensor) or declared.dim() != 1:
        return False
    count, most = declared.double().numpy(), np.asarray(samples, np.float64)
    none = (most > 0) & (count == 0) & (not getattr(type(like), "MAY_BE_EMPTY", False))
    return bool(((count >= 0) & (count <= most) & ~none).all())


def _shorten(text: str) -> str:
    return text if len(text) <= 120 else text[:117] + "..."
