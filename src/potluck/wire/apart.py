"""A message taken apart, once: it is priced, weighed and stacked by its skeleton and its tensors.

A synchronous round has one message for all its clients. In an asynchronous run each task is a new one, so taking it
apart again for each purpose would be much of what an arrival costs.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from torch import Tensor

from potluck.wire.codec import Kinds, flatten, kinds_of, size_of


class Apart:
    """A value, its skeleton and its tensors; shapes, types and bytes when somebody asks for them."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.skeleton: str
        self.tensors: list[Tensor]
        self.skeleton, self.tensors = flatten(value)

    @cached_property
    def shape(self) -> tuple[str, Kinds]:
        """Equal for values that differ in the numbers of their tensors alone."""
        return self.skeleton, kinds_of(self.tensors)

    @cached_property
    def nbytes(self) -> int:
        """The length of the message on the wire."""
        return size_of(self.value, *self.shape, self.tensors)
