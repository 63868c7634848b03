"""Fill frozen dataclasses from plain values; raise BadInput with the name of a setting that does not fit."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from potluck.errors import BadInput, Code, must_be, unknown

T = TypeVar("T")


def fill(kind: type[T], values: Mapping[str, Any], where: str, base: T | None = None) -> T:
    """Fill the dataclass `kind` from plain values; `where` is the section of the experiment they come from.

    A field that is a dataclass itself is a group of settings. A group that is given in part keeps its other defaults:
    those of `base`, which is what the outer dataclass has there.
    """
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}  # type: ignore[arg-type]
    hints = typing.get_type_hints(kind)
    filled = {}
    for name, value in values.items():
        if name not in fields:
            raise _unknown(kind, name, where)
        hint, path = hints[name], f"{where}.{name}"
        if isinstance(hint, type) and dataclasses.is_dataclass(hint) and not isinstance(value, hint):
            if not isinstance(value, Mapping):
                if name in getattr(kind, "MOVED", {}):  # a setting became a group of that name
                    raise _unknown(kind, name, where)
                raise BadInput(
                    Code.SETTING_VALUE,
                    f"{path}: must be a section of settings ({', '.join(names_of(hint))}), got {value!r}.",
                )
            before = getattr(base, name) if base is not None else default_of(fields[name])
            filled[name] = fill(hint, value, path, before)
        else:
            filled[name] = _fit(value, hint, path)
    try:
        return kind(**filled) if base is None else dataclasses.replace(base, **filled)  # type: ignore[type-var]
    except BadInput as error:
        if str(error).startswith(where):
            raise
        raise BadInput(error.code, f"{where}.{error}") from None
    except (TypeError, ValueError) as error:
        raise BadInput(Code.SETTING_VALUE, f"{where}: {error}.") from error


def default_of(field: dataclasses.Field[Any]) -> Any:
    """The default of a field, or None where it has none."""
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else None


def names_of(kind: Any) -> list[str]:
    """The dotted names of all settings of a dataclass; a field that is a dataclass is a group: `recipe.lr`.

    Fields of a group that this dataclass has no use for are left out: it lists their dotted names in `UNUSED`.
    """
    hints = typing.get_type_hints(kind)
    names = []
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        inner = names_of(hint) if dataclasses.is_dataclass(hint) else None
        names += [field.name] if inner is None else [f"{field.name}.{name}" for name in inner]
    return [name for name in names if name not in getattr(kind, "UNUSED", ())]


def flat(kind: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values of a dataclass's settings by their dotted names."""
    groups = {name for name, hint in typing.get_type_hints(kind).items() if dataclasses.is_dataclass(hint)}
    hints = typing.get_type_hints(kind)
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name in groups and isinstance(value, Mapping):
            found |= {f"{name}.{inner}": item for inner, item in flat(hints[name], value).items()}
        else:
            found[name] = value
    return found


def flat_values(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Plain nested values by their dotted names; tuples become lists, as a file has them."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        path = f"{before}{name}"
        if isinstance(value, Mapping):
            found |= flat_values(value, f"{path}.")
        else:
            found[path] = list(value) if isinstance(value, tuple) else value
    return found


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """The opposite of `flat`: dotted names become groups."""
    found: dict[str, Any] = {}
    for path, value in values.items():
        *groups, name = path.split(".")
        at = found
        for group in groups:
            inner = at.setdefault(group, {})
            if not isinstance(inner, dict):
                raise BadInput(Code.SETTING_VALUE, f"{path}: {group} must be a section of settings, got {inner!r}.")
            at = inner
        both = isinstance(value, Mapping) and isinstance(at.get(name), Mapping)
        at[name] = {**at[name], **value} if both else dict(value) if isinstance(value, Mapping) else value
    return found


def moved_to(kind: Any, name: str) -> str | None:
    """The dotted name of a setting that was once called `name`, or None.

    A setting that moved into a group is found by itself: `size` and `probe_size` are now `probe.size`. A dataclass
    lists names that changed otherwise in `MOVED`: {"ucd_bn": "encoder.batch_norm"}.
    """
    grouped = [path for path in reversed(names_of(kind)) if "." in path]
    inside = {path.rpartition(".")[2]: path for path in grouped} | {path.replace(".", "_"): path for path in grouped}
    found: str | None = (inside | getattr(kind, "MOVED", {})).get(name)
    return found


def _unknown(kind: Any, name: str, where: str) -> BadInput:
    new = moved_to(kind, name)
    if new is not None:
        return BadInput(Code.UNKNOWN_SETTING, f"{where}.{name}: is now called {where}.{new}.")
    return unknown(Code.UNKNOWN_SETTING, f"{where}.{name}", name, names_of(kind))


def _fit(value: Any, hint: Any, where: str) -> Any:
    """Convert a value to the annotated type: 1 to 1.0, 2.0 to 2, a list to a tuple, and no more than that."""
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
        raise must_be(Code.SETTING_VALUE, where, _say(hint), value)
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
    raise must_be(Code.SETTING_VALUE, where, _say(hint), value)


_BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
_KINDS = {  # the beginning of pydantic's error types, and what to ask for
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
    """Rephrase pydantic's errors for one value in Potluck's style: "must be at least 0"."""
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
    return f"must be {', '.join(others)}{' or ' if others else ''}{last}"


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
