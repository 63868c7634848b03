"""Check that a method's state survives a checkpoint, before a run starts that could not be resumed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from potluck.errors import BadInput, Code
from potluck.fleet import Params
from potluck.methods import Method
from potluck.wire.codec import decode, encode

_MUST = "must be tensors, numbers, strings, dicts, lists or dataclasses of them, got"


def first_state(method: Method, weights: Params, config: Any) -> Any:
    """Make the state that a run starts with; raise BadInput if it or the private state cannot be saved and resumed."""
    state = method.start(weights, config)
    check(method, state)
    check(method, method.private(weights, config), "private")
    return state


def check(method: Method, value: Any, name: str = "") -> None:
    """Encode and decode a value; raise BadInput with the name of the field that does not come back as it was."""
    found = _problem(value, method.classes, name or type(value).__name__)
    if found is not None:
        raise BadInput(Code.METHOD_OWN, f"method {method.name!r}: {found}")


def _problem(value: Any, classes: Mapping[str, type], where: str) -> str | None:
    """Describe the innermost value that does not survive, or return None."""
    try:
        if _same(value, decode(encode(value), classes)):
            return None
        reason = ""
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        reason = str(error)
    for step, inner in _children(value):
        found = _problem(inner, classes, f"{where}{step}")
        if found is not None:
            return found
    return f"{where}: {_reason(value, classes, reason)}"


def _reason(value: Any, classes: Mapping[str, type], reason: str) -> str:
    kind = type(value)
    if dataclasses.is_dataclass(kind):
        if classes.get(kind.__name__) is not kind:
            return (
                f"the class {kind.__module__}.{kind.__qualname__} is not known. Import it in the method's file, "
                "or name it in the type hint of the field."
            )
        return f"{kind.__qualname__} cannot be built again from its fields ({reason.rstrip('.')})."
    if isinstance(value, Mapping):
        odd = [key for key in value if not isinstance(key, str | int)]
        if odd:
            return f"the keys must be strings or integers, got {odd[0]!r}."
    return f"{_MUST} {kind.__name__}."


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from ((f".{field.name}", getattr(value, field.name)) for field in dataclasses.fields(value))
    elif isinstance(value, Mapping):
        yield from ((f"[{key!r}]", item) for key, item in value.items())
    elif isinstance(value, list | tuple):
        yield from ((f"[{number}]", item) for number, item in enumerate(value))


def _same(value: Any, again: Any) -> bool:
    """Whether a decoded value has the structure of the original.

    A read-only Mapping may come back as a dict, or as itself where its dataclass turns the dict back.
    """
    if isinstance(value, Tensor):
        return isinstance(again, Tensor) and (value.shape, value.dtype) == (again.shape, again.dtype)
    if isinstance(value, Mapping) and not isinstance(value, dict):
        value = dict(value)
        again = dict(again) if isinstance(again, Mapping) else again
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, dict | list | tuple) or dataclasses.is_dataclass(value):
        if type(value) is not type(again):
            return False
        inner, others = dict(_children(value)), dict(_children(again))
        return list(inner) == list(others) and all(_same(inner[step], others[step]) for step in inner)
    return bool(value == again or (value != value and again != again))  # NaN differs from itself
