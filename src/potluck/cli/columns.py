"""Flags that say how a file of your own is read: `--label`, `--client`, `--window` and the like, as settings of [data].

`reads_own_data` adds them to a command. They come to it as the first entries of its --set list, so --set overrides.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from potluck.errors import BadInput, Code

HELP = {
    "features": ("A,B", "your file: the columns that are features, or the array"),
    "label": ("NAME", "your file: the array or column with the labels"),
    "client": ("NAME", "your file: whose each row is; A,B makes a client of both, none: nothing"),
    "time": ("NAME", "your file: the time of each row, or none"),
    "group": ("NAME", "your file: the recording of each row, or none"),
    "split": ("NAME", "your file: the side of each row: train, test or valid, or none"),
    "window": ("SECONDS", "your file: cut its recordings into windows of this length (data.window has more)"),
    "missing": ("RULE", "your file: refuse, drop, mean, interpolate or mask values that are missing"),
}
READING = {"columns", "missing", "window", "kind"}  # the keys of [data] about reading
SETTING = {"window": "data.window.seconds", "missing": "data.missing"}  # the others are roles in data.columns


def reads_own_data(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the flags to a command that has `settings`, the list of --set; `without` names flags that it has itself."""
    names = [name for name in HELP if name not in without]

    def extended(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command)

        @functools.wraps(command)
        def wrapped(*args: Any, **given: Any) -> None:
            said = {name: given.pop(name, None) for name in names}
            bound = signature.bind(*args, **given)
            bound.arguments["settings"] = [*as_settings(said), *(bound.arguments.get("settings") or [])]
            command(*bound.args, **bound.kwargs)

        hints = typing.get_type_hints(command, include_extras=True)
        own = [one.replace(annotation=hints[one.name]) for one in signature.parameters.values()]
        place = next(i for i, one in enumerate(own) if one.name == "settings")
        added = [_parameter(name) for name in names]
        wrapped.__signature__ = signature.replace(parameters=[*own[:place], *added, *own[place:]])  # type: ignore[attr-defined]
        wrapped.__annotations__ = {**hints, **{one.name: one.annotation for one in added}}
        return wrapped

    return extended


def as_settings(said: dict[str, str | None]) -> list[str]:
    """The flags as entries of --set. A name is quoted, also where it looks like a number."""
    given = {name: value for name, value in said.items() if value is not None}
    if not given:  # what follows imports PyTorch
        return []
    from potluck.runs.experiment import as_toml

    found = []
    for name, value in given.items():
        setting = SETTING.get(name, f"data.columns.{name}")
        found.append(f"{setting}={_seconds(value) if name == 'window' else as_toml(value)}")
    return found


def sections(given: Sequence[str], command: str) -> dict[str, Any]:
    """The settings of the model and of the reading of data; other sections mean nothing to the command."""
    from potluck.runs.experiment import override

    found = override({}, given)
    other = next((name for name in found if name not in ("model", "data")), None)
    if other is not None:
        raise BadInput(
            Code.SET_FORM, f"--set: {command} accepts only settings of the sections model and data, got {other!r}."
        )
    if "source" in found.get("data", {}):
        raise BadInput(Code.SET_FORM, "--set: data.source must be given by --data.")
    return found


def reading_of(given: Sequence[str]) -> dict[str, Any]:
    """The settings of [data] that say how a file is read, checked."""
    from potluck.runs.experiment import Experiment

    found = sections(given, "deploy client")
    if "model" in found or set(found.get("data", {})) - READING:
        raise BadInput(Code.SET_FORM, f"--set: deploy client accepts only data.{', data.'.join(sorted(READING))}.")
    Experiment.of({"method": {"name": "fedavg"}, **found})
    return dict(found.get("data", {}))


def loaded(source: str, found: dict[str, Any]) -> Any:
    """The dataset, read as the section [data] says."""
    from potluck.data.load import load
    from potluck.runs.experiment import Experiment

    section = {**found.get("data", {}), "source": source}
    return load(source, Experiment.of({"method": {"name": "fedavg"}, "data": section}).intake())


def _parameter(name: str) -> inspect.Parameter:
    metavar, words = HELP[name]
    annotation = Annotated[str | None, typer.Option(f"--{name}", metavar=metavar, help=words)]
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=annotation)


def _seconds(given: str) -> str:
    number = given.strip().removesuffix("s").strip()
    try:
        float(number)
    except ValueError:
        raise BadInput(Code.FLAG_VALUE, f"--window: must be seconds, such as 2.5, got {given!r}.") from None
    return number
