"""The flags that several commands share. Of the file, the flags and --set, the later one wins."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from potluck.cli import complete
from potluck.errors import BadInput, Code, must_be, unknown

Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="DATA",
        help="a public dataset, a path (.npz, .csv, .parquet or a folder), or package.module:function",
        autocompletion=complete.datasets,
    ),
]
BoardAddress = Annotated[
    str,
    typer.Option("--board", metavar="ADDRESS", help="microcontroller that trains for it, as serial:DEVICE@BAUD"),
]
OwnDevice = Annotated[
    str | None,
    typer.Option("--device", metavar="DEVICE", help="one of `potluck devices` (default: the figures of this machine)"),
]
Reading = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="data.KEY=VALUE", help="how its file is read, instead of what a run says"),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="see `potluck models` (default: a small model that suits the data)",
        autocompletion=complete.models,
    ),
]
Fleet = Annotated[
    str | None,
    typer.Option(
        "--fleet",
        metavar="FLEET",
        help="a fleet or a single device, see `potluck devices`, or a TOML file with devices of your own",
        autocompletion=complete.fleets,
    ),
]
Clients = Annotated[int | None, typer.Option("--clients", metavar="N", help="number of clients")]
Cohort = Annotated[
    int | None, typer.Option("--cohort", metavar="N", help="clients that train in each round; 0 means all clients")
]
Rounds = Annotated[int | None, typer.Option("--rounds", metavar="N", help="stop after this many rounds")]
Budget = Annotated[
    list[str] | None,
    typer.Option(
        "--budget",
        metavar="KIND=AMOUNT",
        help="end at so many virtual_seconds, joules, bytes, local_passes or rounds; repeatable, the first one counts",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", metavar="N", help="seed of every random choice; with several seeds, the first one"),
]
Out = Annotated[str | None, typer.Option("--out", metavar="DIR", help="folder that holds the runs (default: runs)")]
Name = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="name of the run's folder (default: METHOD-DATA-sSEED)"),
]
Engine = Annotated[
    str | None,
    typer.Option("--engine", metavar="ENGINE", help="where clients run: local, or flower-sim (Flower on Ray)"),
]
Workers = Annotated[
    str | None,
    typer.Option(
        "--workers",
        metavar="N",
        help="N threads, processes:N, or ray for a Ray cluster; the results are the same",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        help="change any setting of the experiment; repeatable",
    ),
]
Space = Annotated[
    list[str] | None,
    typer.Option(
        "--space",
        metavar="SETTING=SPACE",
        help="what to choose from: method.recipe.lr=0.01..0.5:log, or fedprox:method.mu=0.01,0.1 for one method",
    ),
]
Sampler = Annotated[
    str | None,
    typer.Option(
        "--sampler", metavar="NAME", help="spread: evenly over the space; optuna: TPE of Optuna (extra `tune`)"
    ),
]
Days = Annotated[int | None, typer.Option("--days", metavar="N", help="keys made now end after so many days")]
Json = Annotated[bool, typer.Option("--json", help="print JSON to standard output, and nothing else")]
QuietFlag = Annotated[bool, typer.Option("--quiet", "-q", help="print only the result: no progress, no notes")]

_SETTING_OF = {
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
    """The file's settings with the flags applied, and notes on settings that a flag made meaningless."""
    from potluck.runs.experiment import read_toml

    values: dict[str, Any] = {} if file is None else read_toml(file)
    notes = []
    for flag, given in flags.items():
        if given is None:
            continue
        section, key = _SETTING_OF[flag]
        part = section_of(values, section)
        if flag == "fleet" and str(given).lower().endswith(".toml"):
            part, given = {**part, "file": str(given)}, _devices_in(Path(given))
        if flag == "model" and part.get("name") not in (None, given):
            # The settings of one kind of model mean nothing to another.
            notes += _dropped(f"--model {given}", "model", [name for name in part if name != "name"], part["name"])
            part = {}
        values[section] = {**part, key: given}
    return values, notes


def _devices_in(path: Path) -> dict[str, float]:
    """The devices of a file, each with the same share of the clients."""
    from potluck.devices import read_devices

    own = read_devices(path).devices
    if not own:
        raise BadInput(Code.DEVICE_FILE, f"--fleet: must be a file with a [devices.NAME] table, got {str(path)!r}.")
    return {name: 1 / len(own) for name in own}


def with_budget(values: Mapping[str, Any], given: list[str] | None) -> dict[str, Any]:
    """The settings with the limits of `--budget`, each KIND=AMOUNT."""
    from potluck.runs.limits import KINDS

    budget = section_of(values, "budget")
    for one in given or []:
        kind, equals, amount = (part.strip() for part in one.partition("="))
        if not equals:
            raise must_be(Code.FLAG_VALUE, "--budget", "KIND=AMOUNT, such as virtual_seconds=600", one)
        if kind not in KINDS:
            raise unknown(Code.FLAG_VALUE, "--budget: kind", kind, KINDS)
        try:
            number = float(amount)
        except ValueError:
            raise must_be(Code.FLAG_VALUE, f"--budget {kind}", "a number above 0", amount) from None
        if not 0 < number < float("inf"):
            raise must_be(Code.FLAG_VALUE, f"--budget {kind}", "a number above 0", amount)
        budget[kind] = int(number) if number.is_integer() else number
    return {**values, "budget": budget} if budget else dict(values)


def with_method(values: Mapping[str, Any], method: str) -> tuple[dict[str, Any], list[str]]:
    """The settings with another method, without the settings of the file's method that this one does not have."""
    from potluck import methods

    section = section_of(values, "method")
    before = section.pop("name", method)
    if before == method:
        return {**values, "method": {"name": method, **section}}, []
    kept, left_out = methods.load(method).suited(section)
    notes = _dropped(f"--method {method}", "method", left_out, before)
    return {**values, "method": {"name": method, **kept}}, notes


def plain(value: object) -> str:
    """A setting's value as a person writes it."""
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def section_of(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    part = values.get(name, {})
    if not isinstance(part, Mapping):
        raise BadInput(Code.EXPERIMENT_FILE, f"{name}: must be a section of settings, got {part!r}.")
    return dict(part)


def _dropped(flag: str, section: str, names: list[str], owner: str) -> list[str]:
    """The note on settings of the file that belong to another model or method."""
    listed = ", ".join(f"{section}.{name}" for name in names)
    kind = "a setting" if len(names) == 1 else "settings"
    return [f"{flag}: ignored {listed} from the file ({kind} of {owner})."] if names else []


MostRows = Annotated[
    int | None, typer.Option("--rows", metavar="N", min=1, help="most rows of each --client; one with more is refused")
]
