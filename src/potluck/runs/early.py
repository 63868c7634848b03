"""What a run begins before the modules are imported that it is made of."""

from __future__ import annotations

import tomllib
from pathlib import Path

from potluck import ahead
from potluck.places import archive, roots


def begin(source: str | None, experiment: Path | None = None) -> None:
    """Unpack the samples in another thread. `source` names the data, or else the experiment's file does."""
    named = _source_in(experiment) if source is None else source
    if named is None:
        return
    path = Path(named).expanduser() if named.lower().endswith(".npz") else archive(named, roots())
    if path is not None:
        ahead.samples(path)


def _source_in(experiment: Path | None) -> str | None:
    """What the file says; a mistake in it is reported by whoever reads all of it."""
    if experiment is None:
        return None
    try:
        found = tomllib.loads(experiment.read_text(encoding="utf-8"))["data"]["source"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if isinstance(found, str) else None
