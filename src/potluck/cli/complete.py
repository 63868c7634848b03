"""What the shell proposes for a flag's value, once `potluck --install-completion` was run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path


def _proposing(names: Callable[[], Iterable[str]], *suffixes: str) -> Callable[[str], list[str]]:
    """Names that begin with what was typed, then files and folders that do."""

    def proposals(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)] + list(_files(incomplete, suffixes))

    return proposals


def _files(incomplete: str, suffixes: Sequence[str]) -> Iterator[str]:
    if not suffixes:
        return
    folder, _, start = incomplete.rpartition("/")
    place = Path(folder or ("/" if incomplete.startswith("/") else "."))
    try:
        there = sorted(place.iterdir())
    except OSError:
        return
    for path in there:
        if path.name.startswith(start or "") and not path.name.startswith("."):
            shown = f"{folder}/{path.name}" if "/" in incomplete else path.name
            if path.suffix in suffixes or path.is_dir():
                yield shown


def _methods() -> Iterable[str]:
    from potluck import methods

    return methods.names()


def _datasets() -> Iterable[str]:
    from potluck.data.load import names

    return names()


def _models() -> Iterable[str]:
    from potluck.models import catalogue

    return catalogue()


def _fleets() -> Iterable[str]:
    from potluck import devices

    return [*devices.PRESETS, *devices.catalogue()]


methods, models = _proposing(_methods, ".py"), _proposing(_models)
datasets, fleets = _proposing(_datasets, ".npz", ".csv", ".parquet"), _proposing(_fleets, ".toml")
