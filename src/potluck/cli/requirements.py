"""Read which packages Potluck needs from its own metadata, so that pyproject.toml is the only place that lists them."""

from __future__ import annotations

import re
from importlib import metadata

# `flwr==1.41.0; extra == 'flower'`, as a wheel's metadata writes it.
_LINE = re.compile(r"""([\w.-]+)\s*([^;]*?)\s*(?:;\s*extra\s*==\s*['"]([\w-]+)['"])?$""")


def requirements(lines: list[str] | None = None) -> dict[str, dict[str, str]]:
    """Map each extra to its packages and their version rules; `""` holds what every install needs.

    The result is empty if Potluck runs from its sources without being installed: then there is no metadata.
    """
    if lines is None:
        try:
            lines = metadata.requires("potluck") or []
        except metadata.PackageNotFoundError:
            return {}
    found: dict[str, dict[str, str]] = {}
    for line in lines:
        package, rule, extra = _LINE.match(line).groups(default="")  # type: ignore[union-attr]
        found.setdefault(extra, {})[package] = rule
    return found
