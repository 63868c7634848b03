"""A message taken apart, once: it is priced, weighed and stacked by its skeleton and its tensors.

A synchronous round has one message for all its clients. In an asynchronous run each task is a new one, so taking it
apart again for each purpose would be much of what an arrival costs. Most of these tasks differ in the numbers of their
tensors alone: they share a `Pattern`, which knows the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from torch import Tensor

from potluck.rows import Row
from potluck.wire.codec import Kinds, fields_of, flatten, kinds_of, size_of

Packed = list[Tensor | Row]  # the tensors of a value, those of a model that is a row in one
_SCALARS = frozenset({int, float, bool, str, type(None)})


class Apart:
    """A value, its skeleton and its tensors; shapes, types and bytes when somebody asks for them."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.pattern: Pattern | None = None
        self.skeleton: str
        self.skeleton, self.tensors = flatten(value)  # `tensors` is known at once, but to a pattern's Apart
        self.packed: Packed = list(self.tensors)

    @cached_property
    def shape(self) -> tuple[str, Kinds]:
        """Equal for values that differ in the numbers of their tensors alone."""
        return self.skeleton, kinds_of(self.tensors)

    @cached_property
    def nbytes(self) -> int:
        """The length of the message on the wire."""
        return size_of(self.value, *self.shape, self.tensors)

    @cached_property
    def tensors(self) -> list[Tensor]:
        return flatten(self.value)[1]


class Pattern:
    """What messages have in common that differ in the numbers of their tensors alone."""

    def __init__(self, apart: Apart, tensors: list[str], fixed: dict[str, Any]) -> None:
        self.apart = apart  # one of them
        self.kind = type(apart.value)
        self._rows = [(name, getattr(apart.value, name).stack.form) for name in tensors if _row(apart.value, name)]
        plain = [(name, getattr(apart.value, name)) for name in tensors if not _row(apart.value, name)]
        self._plain = [(name, value.shape, value.dtype) for name, value in plain]
        self._fixed = list(fixed.items())
        self._packed = tensors

    def of(self, message: Any) -> Apart | None:
        """A message of this pattern taken apart; None for any other message."""
        if type(message) is not self.kind:
            return None
        fields = message.__dict__
        for name, known in self._fixed:
            value = fields[name]
            if value is not known and (type(value) is not type(known) or value != known or not value):
                return None  # of what counts as nothing there are several: 0.0 and -0.0
        for name, form in self._rows:
            row = fields[name]
            if type(row) is not Row or row.stack is None or row.stack.form is not form:
                return None
        for name, shape, dtype in self._plain:
            value = fields[name]
            if type(value) is not Tensor or value.shape != shape or value.dtype is not dtype:
                return None
        apart: Apart = object.__new__(Apart)
        known = self.apart
        apart.__dict__.update(
            value=message,
            pattern=self,
            skeleton=known.skeleton,
            shape=known.shape,
            nbytes=known.nbytes,
            packed=[fields[name] for name in self._packed],
        )
        return apart


def _row(message: Any, name: str) -> bool:
    return type(getattr(message, name)) is Row


def _lasting(value: Any) -> bool:
    """Whether a value cannot change: a number, a text, or a frozen record of such."""
    if type(value) in _SCALARS:
        return True
    kind: Any = type(value)
    settings = getattr(kind, "__dataclass_params__", None)
    return (
        settings is not None
        and settings.frozen
        and all(type(getattr(value, name)) in _SCALARS for name in fields_of(kind))
    )


def pattern_of(apart: Apart) -> Pattern | None:
    """The pattern of a message with a row and at most one other tensor in its fields; None for any other."""
    message, tensors, fixed = apart.value, [], {}
    kind: Any = type(message)
    names = fields_of(kind)
    if set(names) != getattr(message, "__dict__", {}).keys():
        return None
    for name in names:
        value = getattr(message, name)
        if type(value) is Tensor or (type(value) is Row and value.stack is not None):
            tensors.append(name)
        elif _lasting(value):
            fixed[name] = value
        else:
            return None
    rows = sum(_row(message, name) for name in tensors)
    if rows != 1 or len(tensors) > 2:  # so that none of them can be there twice
        return None
    return Pattern(apart, tensors, fixed)


def unpacked(packed: Sequence[Tensor | Row]) -> list[Tensor]:
    """The tensors, each by itself."""
    found: list[Tensor] = []
    for value in packed:
        found += value.values() if type(value) is Row else [value]  # type: ignore[list-item]
    return found


class Patterns:
    """Takes messages apart, in a short way those that differ from one before in the numbers of their tensors alone."""

    def __init__(self) -> None:
        self._known: dict[type, Pattern] = {}  # the newest one of each class

    def __call__(self, message: Any) -> Apart:
        kind = type(message)
        known = self._known.get(kind)
        apart = None if known is None else known.of(message)
        if apart is not None:
            return apart
        apart = Apart(message)
        pattern = pattern_of(apart)
        if pattern is None:
            return apart
        self._known[kind] = pattern
        first = pattern.of(message)
        return apart if first is None else first
