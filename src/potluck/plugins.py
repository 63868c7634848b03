"""What installed packages add to Potluck: methods, models, datasets and devices, found by their entry points.

A package names its additions in its own pyproject.toml:

    [project.entry-points."potluck.methods"]
    fedmedian = "acme.fedmedian"

Only the names are read here. The code of a package is imported when one of its names is used, so a package that is
broken does no harm to other runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from potluck.errors import BadInput, Code

CODES = {
    "methods": Code.METHOD_OWN,
    "models": Code.MODEL_OWN,
    "datasets": Code.DATA_FUNCTION,
    "devices": Code.DEVICE_FILE,
}
_ONE = {"methods": "method", "models": "model", "datasets": "data", "devices": "device"}


@dataclass(frozen=True)
class Plugin:
    """One addition: its name, its entry point, and why it cannot be used, where that is known without importing it."""

    kind: str
    name: str
    entry: EntryPoint
    clash: str = ""

    @property
    def package(self) -> str:
        """The distribution that adds it, with its version."""
        dist = self.entry.dist
        return "an unknown package" if dist is None else f"{dist.metadata['Name']} {dist.version}"

    def load(self) -> Any:
        """Import it. A clash of names and a failed import raise BadInput."""
        if self.clash:
            raise BadInput(CODES[self.kind], self.clash)
        try:
            return self.entry.load()
        except Exception as error:  # whatever the package does when it is imported
            raise BadInput(
                CODES[self.kind],
                f"{_ONE[self.kind]}: {self.name!r} of the package {self.package} cannot be imported "
                f"({type(error).__name__}: {error}).",
            ) from error

    @property
    def trouble(self) -> str:
        """Why it cannot be used, or nothing; imports it."""
        try:
            self.load()
        except BadInput as error:
            return str(error)
        return ""


def plugins(kind: str, built_in: Collection[str]) -> dict[str, Plugin]:
    """Return the additions of one kind by name. A name that is taken is kept, with the reason why it is refused."""
    found: dict[str, Plugin] = {}
    for entry in _entries(f"potluck.{kind}", tuple((folder, _changed(folder)) for folder in sys.path)):
        one = Plugin(kind, entry.name, entry)
        if entry.name in built_in:
            one = _refused(one, "Potluck itself")
        elif entry.name in found:
            one = _refused(one, found[entry.name].package)
        found[entry.name] = one
    return found


def plugin(kind: str, name: str, built_in: Collection[str]) -> Plugin | None:
    """Return the addition of this name. A name that Potluck or two packages have raises BadInput."""
    found = plugins(kind, built_in).get(name)
    if found is not None and found.clash:
        raise BadInput(CODES[kind], found.clash)
    return found


def _refused(one: Plugin, other: str) -> Plugin:
    clash = (
        f"{_ONE[one.kind]}: {one.name!r} is a name of {other} and of the package {one.package}. "
        f"Rename the entry point of {one.package}, or uninstall it."
    )
    return Plugin(one.kind, one.name, one.entry, clash)


def _changed(folder: str) -> float:
    """When a folder of the path last got or lost a package."""
    try:
        return os.stat(folder or ".").st_mtime
    except OSError:
        return 0.0


@lru_cache(maxsize=4)
def _read(path: tuple[tuple[str, float], ...]) -> Any:
    """All entry points. Reading them takes a while, so they are read again only where `path` has changed."""
    return entry_points()


def _entries(group: str, path: tuple[tuple[str, float], ...]) -> tuple[EntryPoint, ...]:
    return tuple({(entry.name, entry.value): entry for entry in _read(path).select(group=group)}.values())
