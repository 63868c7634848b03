"""A frozen record with some of its fields renewed, without the checks of its class."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


def renewed(value: T, **fields: Any) -> T:
    """`dataclasses.replace` in a tenth of the time, for what an asynchronous server renews at every arrival.

    Neither `__init__` nor `__post_init__` runs: the new values must be what these would make of them.
    """
    new: T = object.__new__(type(value))
    new.__dict__.update(value.__dict__)
    new.__dict__.update(fields)
    return new
