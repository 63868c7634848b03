"""The dataclasses that the messages and states of a method may hold.

Messages and checkpoints name a class by its bare name, and decoding builds only classes from this list. So the list
must be complete, and each name must stand for one class.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from functools import lru_cache
from types import ModuleType
from typing import Any

from potluck.errors import BadInput, Code
from potluck.fleet import Data, Done
from potluck.wire.gate import Expected, Seen

_ALWAYS = (Data, Done, Expected, Seen)  # checkpoints and hand-offs hold them, whatever the method


def classes_of(module: ModuleType, method: str) -> dict[str, type]:
    """Collect the dataclasses that a method's file declares or imports, and those in the type hints of their fields.

    Two classes of one name raise BadInput.
    """
    found: dict[str, type] = {}
    open_ones: list[type] = [*_ALWAYS, *_dataclasses(tuple(vars(module).values()))]
    while open_ones:
        kind = open_ones.pop(0)
        known = found.get(kind.__name__)
        if known is None:
            found[kind.__name__] = kind
            open_ones += _held(kind)
        elif known is not kind:
            raise BadInput(
                Code.METHOD_OWN,
                f"method {method!r}: two classes are called {kind.__name__}, in {known.__module__} "
                f"and in {kind.__module__}. Rename one of them.",
            )
    return found


@lru_cache(maxsize=4096)
def _held(kind: type) -> tuple[type, ...]:
    """The dataclasses in the type hints of its fields; every session asks for those of all its messages."""
    return tuple(_dataclasses(_hints(kind)))


def _hints(kind: type) -> tuple[Any, ...]:
    try:
        return tuple(typing.get_type_hints(kind).values())
    except NameError:  # a name that is imported for type checkers only
        return ()


def _dataclasses(hints: tuple[Any, ...]) -> Iterator[type]:
    """Find the dataclasses in type hints, also inside list[...], dict[...] and unions."""
    for hint in hints:
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            yield hint
        yield from _dataclasses(typing.get_args(hint))
