"""Keep runs: which settings they differ in, their tags, and their removal."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from potluck.errors import BadInput, Code, must_be
from potluck.files import write_json
from potluck.runs.compare import state_of
from potluck.runs.results import Run
from potluck.settings import flat_values

TAGS = "tags.json"
TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,40}")
# Where a run is and what it is called; `run.filled` repeats what other settings say.
NO_DIFFERENCE = {"run.name", "run.out", "run.filled", "run.workers", "run.checkpoint_seconds"}


def settings_of(folder: Path) -> dict[str, Any]:
    """Every setting of a run's experiment by its dotted name; empty where the file cannot be read."""
    try:
        values = tomllib.loads((folder / "experiment.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return flat_values(values)


def differing(settings: Sequence[Mapping[str, Any]], absent: bool = False) -> list[str]:
    """The settings with two values among these runs; with `absent`, also those that only some runs have."""
    names = list(dict.fromkeys(name for one in settings for name in one if name not in NO_DIFFERENCE))
    found = []
    for name in names:
        values = [one[name] for one in settings if name in one]
        if any(value != values[0] for value in values[1:]) or (absent and len(values) < len(settings)):
            found.append(name)
    return found


def tags_of(folder: Path) -> list[str]:
    try:
        found = json.loads((folder / TAGS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [str(tag) for tag in found] if isinstance(found, list) else []


def set_tags(folder: Path, add: Sequence[str], remove: Sequence[str]) -> list[str]:
    """Add and remove tags of a run; return those that it has now."""
    _is_run(folder)
    for tag in add:
        if not TAG.fullmatch(tag):
            raise must_be(Code.FLAG_VALUE, "--add", "a word of letters, digits, dots and dashes", tag)
    kept = [tag for tag in dict.fromkeys([*tags_of(folder), *add]) if tag not in remove]
    write_json(folder / TAGS, kept)
    return kept


def check_deletable(folder: Path) -> None:
    """Raise BadInput for anything that is not the folder of a run that has ended."""
    if folder.is_symlink():
        raise BadInput(Code.RUN_ABSENT, f"delete: {str(folder)!r} is a link; name the folder itself.")
    _is_run(folder)
    inside = sorted(path.parent.name for path in folder.glob("*/experiment.toml"))
    if inside:
        raise BadInput(Code.RUN_ABSENT, f"delete: {str(folder)!r} holds other runs ({inside[0]}); delete those first.")
    if state_of(Run(folder)) == "running":
        raise BadInput(Code.BUSY, f"delete: {str(folder)!r} is running. Stop it first.")


def delete(folder: Path) -> None:
    """Remove the folder of a run that has ended."""
    check_deletable(folder)
    shutil.rmtree(folder)


def _is_run(folder: Path) -> None:
    if not (folder / "experiment.toml").is_file() or not (folder / "run.db").is_file():
        raise BadInput(
            Code.RUN_ABSENT,
            f"runs: {str(folder)!r} is not the folder of a run: it must hold experiment.toml and run.db.",
        )
