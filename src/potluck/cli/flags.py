"""The flags that `run` and `compare` share; of file, flags and --set the later one wins."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from potluck.errors import BadInput, Code

Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="DATA",
        help="a public set, a path (.npz, .csv, .parquet, folder) or package.module:function",
    ),
]
Model = Annotated[
    str | None,
    typer.Option("--model", metavar="MODEL", help="see `potluck models`; chosen for the data otherwise"),
]
Fleet = Annotated[
    str | None, typer.Option("--fleet", metavar="FLEET", help="a fleet or one device, see `potluck devices`")
]
Clients = Annotated[int | None, typer.Option("--clients", metavar="N", help="how many clients there are")]
Cohort = Annotated[int | None, typer.Option("--cohort", metavar="N", help="clients asked per round; 0 asks everybody")]
Rounds = Annotated[int | None, typer.Option("--rounds", metavar="N", help="rounds after which a run ends")]
Seed = Annotated[
    int | None,
    typer.Option("--seed", metavar="N", help="the first seed; every random choice follows from it"),
]
Out = Annotated[
    str | None, typer.Option("--out", metavar="DIR", help="the folder that holds the runs; runs/ otherwise")
]
Name = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="of the new folder; made from method, data and seed otherwise"),
]
Engine = Annotated[
    str | None, typer.Option("--engine", metavar="ENGINE", help="where clients run: local, or flower-sim (on Ray)")
]
Workers = Annotated[
    str | None,
    typer.Option(
        "--workers", metavar="N", help="threads; processes:N; or ray, a Ray cluster; results do not depend on it"
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        help="any setting of the experiment; may be given again and again",
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="print the figures as JSON on standard output, and nothing else there")
]
QuietFlag = Annotated[bool, typer.Option("--quiet", "-q", help="no progress and no notes, only the result")]

_PLACES = {
    "data": ("data", "source"),
    "model": ("model", "name"),
    "fleet": ("fleet", "devices"),
    "clients": ("partition", "clients"),
    "rounds": ("stop", "rounds"),
    "seed": ("run", "seed"),
    "out": ("run", "out"),
    "name": ("run", "name"),
    "engine": ("run", "engine"),
    "workers": ("run", "workers"),
}


def gathered(file: Path | None, **flags: Any) -> tuple[dict[str, Any], list[str]]:
    """The file's settings with the flags over them, and notes on what the flags made void."""
    from potluck.runs.experiment import read_toml

    values: dict[str, Any] = {} if file is None else read_toml(file)
    notes = []
    for flag, given in flags.items():
        if given is None:
            continue
        section, key = _PLACES[flag]
        part = section_of(values, section)
        if flag == "model" and part.get("name") not in (None, given):
            others = [name for name in part if name != "name"]
            if others:  # the settings of one kind of model mean nothing to another
                notes.append(
                    f"--model {given}: the file's {_listed('model', others)} are {part['name']}'s and left out."
                )
            part = {}
        values[section] = {**part, key: given}
    return values, notes


def with_method(values: Mapping[str, Any], method: str) -> tuple[dict[str, Any], list[str]]:
    """The settings with another method, without those of the file's method that this one does not have."""
    from potluck import methods

    section = section_of(values, "method")
    before = section.pop("name", method)
    if before == method:
        return {**values, "method": {"name": method, **section}}, []
    kept, left_out = methods.load(method).suited(section)
    notes = (
        [f"--method {method}: the file's {_listed('method', left_out)} are {before}'s and left out."]
        if left_out
        else []
    )
    return {**values, "method": {"name": method, **kept}}, notes


def section_of(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    part = values.get(name, {})
    if not isinstance(part, Mapping):
        raise BadInput(Code.EXPERIMENT_FILE, f"{name}: {part!r} given, a section of settings is needed.")
    return dict(part)


def _listed(section: str, names: list[str]) -> str:
    return ", ".join(f"{section}.{name}" for name in names)
