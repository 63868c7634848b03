"""An experiment: one TOML file with all settings, checked before anything runs.

Sections `data task fleet server stop budget newcomers drift faults wire privacy secure run` have fixed keys
(`sections.py`); `partition`, `model` and `method` take the settings of what they name. An
unknown key raises BadInput, which names the nearest key.
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from potluck.data import PartitionSpec
from potluck.data.intake.spec import Intake
from potluck.engines.local.faults import Faults
from potluck.errors import BadInput, Code, must_be, no_file, unknown
from potluck.runs.fleet_section import FleetSection
from potluck.runs.plain import check_plain
from potluck.runs.privacy_section import PrivacySection, SecureSection
from potluck.runs.sections import (
    BudgetSection,
    DataSection,
    DriftSection,
    FaultsSection,
    NewcomersSection,
    RunSection,
    ServerSection,
    StopSection,
    TaskSection,
    WireSection,
)
from potluck.settings import allowed, fill, nested

# What may differ between the methods of a comparison. Clients, devices, the split and the seeds may not.
# Access points are added to the same clients, and only methods that work in pairs can use them.
OWN = ("method", "model", "stop", "fleet.access_point")


class Experiment(BaseModel):
    """A whole experiment, checked. `Experiment.read` takes a file, `Experiment.of` a nested dict."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: DataSection = DataSection()  # type: ignore[call-arg]
    task: TaskSection = TaskSection()  # type: ignore[call-arg]
    partition: dict[str, Any] = Field(default_factory=dict)
    fleet: FleetSection = FleetSection()  # type: ignore[call-arg]
    model: dict[str, Any] = Field(default_factory=dict)
    method: dict[str, Any] = Field(default_factory=lambda: {"name": "fedavg"})
    server: ServerSection = ServerSection()  # type: ignore[call-arg]
    stop: StopSection = StopSection()  # type: ignore[call-arg]
    budget: BudgetSection = BudgetSection()  # type: ignore[call-arg]
    newcomers: NewcomersSection = NewcomersSection()  # type: ignore[call-arg]
    drift: DriftSection = DriftSection()  # type: ignore[call-arg]
    faults: FaultsSection = FaultsSection()  # type: ignore[call-arg]
    wire: WireSection = WireSection()  # type: ignore[call-arg]
    privacy: PrivacySection = PrivacySection()  # type: ignore[call-arg]
    secure: SecureSection = SecureSection()  # type: ignore[call-arg]
    run: RunSection = RunSection()  # type: ignore[call-arg]

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Experiment:
        """Make an experiment from nested plain values; mistakes raise BadInput with one sentence."""
        check_plain(values)
        values = dict(values)
        if isinstance(values.get("method"), Mapping):
            values["method"] = nested(values["method"])  # "recipe.lr" is recipe = { lr = ... }
        stop = values.get("stop", {})
        if values.get("budget") and isinstance(stop, Mapping) and "rounds" not in stop:
            values["stop"] = {**stop, "rounds": None}  # the budget ends the run, and no default does
        try:
            experiment = cls.model_validate(values)
        except ValidationError as error:
            raise _sentence(error, cls) from None
        if "name" not in experiment.method:
            raise BadInput(Code.NOT_SAID, "method.name: missing; which method is to run? See `potluck methods`.")
        if not experiment.budget.limits and not experiment.stop.model_dump(exclude_none=True):
            raise BadInput(
                Code.NEVER_ENDS,
                "stop: nothing would ever end this run; set rounds, virtual_seconds, accuracy, score, patience or "
                "a budget.",
            )
        total = sum(getattr(experiment.faults, kind) for kind in Faults.KINDS)
        if total > 1:
            raise BadInput(Code.SETTINGS_CLASH, f"faults: the probabilities must add up to at most 1, got {total:g}.")
        if experiment.fleet.rows_per_hour and not experiment.fleet.passes:
            raise BadInput(
                Code.SETTINGS_CLASH,
                "fleet.rows_per_hour: works with fleet.passes only, which says how often a row may be visited.",
            )
        if experiment.newcomers.share and (experiment.drift.at or experiment.run.engine != "local"):
            why = "drift.at" if experiment.drift.at else f"run.engine = {experiment.run.engine!r}"
            raise BadInput(
                Code.SETTINGS_CLASH, f"newcomers.share: must be 0 with {why}, got {experiment.newcomers.share}."
            )
        _ = experiment.fleet.windows
        experiment.partition_spec()
        experiment.drift.spec()
        experiment.intake()
        return experiment

    @classmethod
    def read(cls, path: Path | str, overrides: Sequence[str] = ()) -> Experiment:
        """Read a TOML file, with `section.key=value` overrides."""
        return cls.of(override(read_toml(Path(path)), overrides))

    def intake(self) -> Intake:
        """How a file of the user's is read, for the task of the experiment."""
        spec = self.task.spec()
        left_out = ("auto", "ignore") if self.data.missing == "drop" else ("auto",)
        return replace(self.data.intake(), task=spec.name, unlabelled=spec.unlabelled not in left_out)

    def partition_spec(self) -> PartitionSpec:
        spec = fill(PartitionSpec, self.partition, "partition")
        return (
            spec
            if spec.seed is not None
            else fill(PartitionSpec, {**self.partition, "seed": self.run.seed}, "partition")
        )

    def with_(self, **sections: Mapping[str, Any]) -> Experiment:
        """Return a copy with some keys of some sections changed; settings that the user left out stay so."""
        values = self.model_dump(exclude_unset=True)
        for section, changes in sections.items():
            values[section] = {**values.get(section, {}), **changes}
        return Experiment.of(values)

    def toml(self) -> str:
        """Write the experiment as TOML that gives the same run again."""
        values = {name: part for name, part in self.model_dump(exclude_none=True).items() if part}
        if not self.run.filled:
            del values["run"]["filled"]
        if self.task == TaskSection():  # type: ignore[call-arg]
            del values["task"]
        values.setdefault("stop", {}).setdefault(
            "rounds", 0
        )  # TOML has no null, and leaving the key out would mean the default
        return to_toml(values)


def is_own(name: str) -> bool:
    """Whether a single method of a comparison may have this setting; `name` is section.key."""
    return name in OWN or name.partition(".")[0] in OWN


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise no_file(Code.EXPERIMENT_FILE, "experiment", path) from None
    except IsADirectoryError:
        raise must_be(Code.EXPERIMENT_FILE, f"experiment: {str(path)!r}", "a TOML file", shown="a folder") from None
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits, and nesting without end
        raise BadInput(Code.EXPERIMENT_FILE, f"experiment: {str(path)!r} is not valid TOML ({error}).") from None
    except OSError as error:
        raise BadInput(Code.EXPERIMENT_FILE, f"experiment: {str(path)!r} cannot be read ({error.strerror}).") from None


def override(values: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Apply each `section.key=value`. A value is read as TOML, or as a text if it is not TOML."""
    result: dict[str, Any] = copy.deepcopy(dict(values))
    for setting in settings:
        path, equals, text = setting.partition("=")
        parts = path.strip().split(".")
        if not equals or len(parts) < 2 or not all(parts):
            raise BadInput(Code.SET_FORM, f"--set: must be section.key=value, such as stop.rounds=50, got {setting!r}.")
        if parts[0] not in Experiment.model_fields:
            raise unknown(Code.UNKNOWN_SETTING, "--set section", parts[0], Experiment.model_fields)
        at = result
        for part in parts[:-1]:
            at = at.setdefault(part, {})
            if not isinstance(at, dict):
                raise BadInput(Code.SET_FORM, f"--set: {setting!r}: {part!r} is a value, not a section.")
        at[parts[-1]] = _value(path.strip(), text.strip())
    return result


def _value(path: str, text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    except (ValueError, RecursionError):
        raise BadInput(Code.SET_FORM, f"--set: {path}: the value is too long or too deep to be read.") from None


def to_toml(values: Mapping[str, Any]) -> str:
    """Write plain nested values as TOML: sections of scalars, lists and inline tables."""
    lines: list[str] = []
    for section, part in values.items():
        lines.append(f"[{section}]")
        lines += [f"{_key(name)} = {as_toml(value)}" for name, value in part.items() if value is not None]
        lines.append("")
    return "\n".join(lines)


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else as_toml(name)


def as_toml(value: Any) -> str:
    """Write one value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        escaped = "".join(
            f"\\u{ord(c):04x}" if ord(c) < 32 or ord(c) == 127 else c
            for c in value.replace("\\", "\\\\").replace('"', '\\"')
        )
        return f'"{escaped}"'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(as_toml(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(str(k))} = {as_toml(v)}" for k, v in value.items() if v is not None) + "}"
    raise BadInput(Code.EXPERIMENT_FILE, f"experiment: {value!r} cannot be written as TOML.")


def settings_named(name: str) -> list[str]:
    """The settings whose last part is this name, also in the plural: `overlap` is data.window.overlap."""
    fields: dict[str, Any] = dict(Experiment.model_fields)
    found = []
    while fields:
        path, field = fields.popitem()
        inner = _fields_of(field.annotation)
        fields |= {f"{path}.{key}": each for key, each in inner.items()}
        if not inner and path.rpartition(".")[2] in (name, f"{name}s"):
            found.append(path)
    return found


def _fields_of(annotation: Any) -> Mapping[str, Any]:
    """The keys of a section, also of one that may be left out."""
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind.model_fields
    return {}


def _sentence(error: ValidationError, cls: type[BaseModel]) -> BadInput:
    """Phrase the first error as one sentence."""
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    if first["type"] == "extra_forbidden":
        fields: Mapping[str, Any] = cls.model_fields
        for part in path[:-1]:
            fields = _fields_of(fields[part].annotation)
        return unknown(Code.UNKNOWN_SETTING, ".".join(path), path[-1], fields)
    where = ".".join(part for part in path if not part.endswith("]") and part not in ("str", "float", "int"))
    names = re.fullmatch(r"\^\((.+)\)\$", str(first.get("ctx", {}).get("pattern", "")))
    if names is not None:  # one of a few words
        return unknown(Code.SETTING_VALUE, where, first["input"], names[1].split("|"))
    alike = [one for one in error.errors() if one["loc"][:2] == first["loc"][:2]]  # of a value of several kinds, each
    return BadInput(Code.SETTING_VALUE, f"{where}: {allowed(alike)}, got {first['input']!r}.")
