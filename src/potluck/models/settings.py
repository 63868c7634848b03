"""The settings of a model, read from its constructor and checked one by one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from potluck.errors import BadInput, Code, unknown
from potluck.settings import allowed


def _one_is_many(value: object) -> object:
    return (value,) if isinstance(value, int) else value


Count = Annotated[int, Field(ge=1)]
Size = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, lt=1)]
Counts = Annotated[tuple[Count, ...], BeforeValidator(_one_is_many)]
Activation = Literal["relu", "tanh"]


def defaults(make: Callable[..., object]) -> dict[str, Any]:
    """Return the settings of a constructor, without `shape` and `classes`, with their defaults."""
    return {
        name: list(p.default) if isinstance(p.default, tuple) else p.default
        for name, p in inspect.signature(make).parameters.items()
        if name not in ("shape", "classes")
    }


def resolve(make: type, standard: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all settings of a model: the defaults, replaced by `given`, checked by the constructor's types."""
    settings = dict(standard)
    hints = get_type_hints(inspect.getattr_static(make, "__init__"), include_extras=True)
    for name, value in given.items():
        if name not in settings:
            raise (
                unknown(Code.UNKNOWN_SETTING, "model settings", name, settings)
                if settings
                else BadInput(Code.UNKNOWN_SETTING, f"model settings: this model has no settings, got {name!r}.")
            )
        checked = check(f"model.{name}", hints[name], value)
        settings[name] = list(checked) if isinstance(checked, tuple) else checked
    return settings


def check(field: str, hint: Any, value: object) -> Any:
    if get_origin(hint) is Literal and value not in get_args(hint):
        raise unknown(Code.SETTING_VALUE, field, value, get_args(hint))
    try:
        return TypeAdapter(hint).validate_python(value)
    except ValidationError as error:
        raise BadInput(Code.SETTING_VALUE, f"{field}: {allowed(error.errors())}, got {value!r}.") from None
