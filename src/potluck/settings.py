"""Settings from plain values: a frozen dataclass is filled from a mapping, and what does not fit is refused by name."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from potluck.errors import BadInput, Code, unknown

T = TypeVar("T")


def fill(kind: type[T], values: Mapping[str, Any], where: str) -> T:
    """An instance of the dataclass `kind`; `where` is the section of the experiment the values come from."""
    hints = typing.get_type_hints(kind)
    fields = {field.name for field in dataclasses.fields(kind) if field.init}  # type: ignore[arg-type]
    filled = {}
    for name, value in values.items():
        if name not in fields:
            raise unknown(Code.UNKNOWN_SETTING, f"{where}.{name}", name, fields)
        filled[name] = _fit(value, hints[name], f"{where}.{name}")
    try:
        return kind(**filled)
    except BadInput:
        raise
    except (TypeError, ValueError) as error:
        raise BadInput(Code.SETTING_VALUE, f"{where}: {error}.") from error


def _fit(value: Any, hint: Any, where: str) -> Any:
    """The value as the annotated type, with the few conversions nobody would be surprised by."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        for option in inner:
            if (option is type(None)) == (value is None):
                try:
                    return _fit(value, option, where)
                except BadInput:
                    continue
        raise BadInput(Code.SETTING_VALUE, f"{where}: {value!r} given, allowed is {_say(hint)}.")
    if origin is typing.Literal:
        if any(value == option and type(value) is type(option) for option in inner):
            return value
        raise unknown(Code.SETTING_VALUE, where, value, [str(option) for option in inner])
    if origin is tuple and isinstance(value, list | tuple) and (inner[-1] is ... or len(value) == len(inner)):
        hints = inner if inner[-1] is not ... else inner[:1] * len(value)
        return tuple(_fit(item, each, where) for item, each in zip(value, hints, strict=True))
    if origin is list and isinstance(value, list | tuple):
        return [_fit(item, inner[0], where) for item in value]
    if origin in (dict, Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        if isinstance(value, Mapping):
            return {name: _fit(item, inner[1], f"{where}.{name}") for name, item in value.items()}
    elif hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif hint is int and not isinstance(value, bool) and (isinstance(value, int) or _whole(value)):
        return int(value)
    elif isinstance(hint, type) and isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    raise BadInput(Code.SETTING_VALUE, f"{where}: {value!r} given, allowed is {_say(hint)}.")


_BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
_KINDS = {  # how the names of pydantic's complaints begin, and what they ask for
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "string": "a text",
    "bool": "true or false",
    "dict": "a table",
    "list": "a list",
    "tuple": "a list",
    "model": "a section of settings",
    "none": "nothing",
}


def allowed(complaints: Sequence[Mapping[str, Any]]) -> str:
    """What pydantic's complaints about one value come down to, in our words: "allowed is at least 0"."""
    wanted: dict[str, None] = {}
    for one in complaints:
        context = one.get("ctx", {})
        if one["type"] == "value_error":
            return str(context["error"])
        bounds = [f"{word} {context[name]:g}" for name, word in _BOUNDS.items() if name in context]
        kind = _KINDS.get(str(one["type"]).partition("_")[0])
        if not bounds and kind is None:
            return f"{one['msg'][0].lower()}{one['msg'][1:]}"
        wanted[bounds[0] if bounds else str(kind)] = None
    *others, last = wanted
    return f"allowed is {', '.join(others)}{' or ' if others else ''}{last}"


def _whole(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer()


def _say(hint: Any) -> str:
    names = {
        int: "a whole number",
        float: "a number",
        str: "a text",
        bool: "true or false",
        type(None): "nothing",
    }
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(_say(option) for option in typing.get_args(hint) if option is not type(None))
    if typing.get_origin(hint) is tuple and typing.get_args(hint)[-1] is not ...:
        return " and ".join(_say(each) for each in typing.get_args(hint))
    if typing.get_origin(hint) in (tuple, list):
        return f"a list of {_say(typing.get_args(hint)[0]).removeprefix('a ')}s"
    return names.get(hint, "a table" if typing.get_origin(hint) is not None else str(hint))
