"""Load a dataset by name, by path, or by `package.module:function`. Nothing is downloaded."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from potluck.data import exercises, files
from potluck.data.dataset import Dataset
from potluck.data.function import call
from potluck.data.intake.spec import Intake
from potluck.data.made import made
from potluck.data.npz import read_npz
from potluck.data.public import PUBLIC
from potluck.errors import BadInput, Code, Missing, nearest
from potluck.plugins import Plugin, plugin, plugins

MADE = "made"
_ALIASES = {"watch": "watch_exercises"}
_MADE_LINE = "synthetic sensor windows for first trials, 4 classes, 12 wearers in two groups"


def names() -> dict[str, str]:
    """List the datasets with a name, one line each: the public ones, then those of installed packages."""
    own = {name: PUBLIC[name].line if name in PUBLIC else _MADE_LINE for name in sorted([*PUBLIC, MADE])}
    added = {name: f"of the package {one.package}" for name, one in additions().items() if name not in own}
    return own | added


def additions() -> dict[str, Plugin]:
    """Return the datasets that installed packages add, by name."""
    return plugins("datasets", [*PUBLIC, MADE])


def load(source: str, intake: Intake | None = None) -> Dataset:
    """Load the dataset called `source`, at the path `source`, or returned by the function `source`.

    `intake` says how a file of your own is read: `[data.columns]`, `data.missing`, `[data.window]`, `data.kind`.
    """
    name = _ALIASES.get(source, source)
    intake = intake or Intake()
    added = plugin("datasets", name, [*PUBLIC, MADE])
    if is_named(source):
        intake.refuse_for(f"the dataset {name!r}")
    if added is not None:
        added.load()  # if it fails, the error names the package
        return replace(call(added.entry.value), notes=(), taken=(), own=False)
    if name == MADE:
        return made()
    if name in PUBLIC:
        return _public(name)
    path = Path(source).expanduser()
    if path.exists() or path.suffix.lower() in files.SUFFIXES:
        return files.read(path, intake)
    if ":" in source:
        return call(source, intake)
    close = nearest(source, [*names(), *files.beside(path)])
    raise BadInput(
        Code.DATA_UNKNOWN,
        f"data: {source!r} is neither a known set nor a file{f', did you mean {close!r}?' if close else ';'} "
        f"Allowed: {', '.join(names())}, a path to .npz, .csv, .parquet or a folder, "
        "or package.module:function.",
    )


def loaded(source: str, intake: Intake) -> Dataset:
    """As `load`, for those who change nothing in it: the public set that was loaded last is not read again."""
    name = _ALIASES.get(source, source)
    path = _kept(name, intake)
    if path is None:
        return load(source, intake)
    file = path.stat()
    return _last(name, path, file.st_mtime_ns, file.st_size)


def is_kept(source: str, intake: Intake) -> bool:
    """Whether `loaded` returns the same set again, as long as no other is loaded and its file stays."""
    return _kept(_ALIASES.get(source, source), intake) is not None


def _kept(name: str, intake: Intake) -> Path | None:
    """The file of a public set that is read as it comes."""
    if name not in PUBLIC or plugin("datasets", name, [*PUBLIC, MADE]) is not None or intake != Intake():
        return None
    return find(name)


@lru_cache(maxsize=1)
def _last(name: str, path: Path, changed: int, size: int) -> Dataset:
    return _built(name, path)


def is_named(source: str) -> bool:
    """Whether a source is the name of a dataset, and not a file or function of the user's."""
    name = _ALIASES.get(source, source)
    return name == MADE or name in PUBLIC or plugin("datasets", name, [*PUBLIC, MADE]) is not None


def roots() -> list[Path]:
    """List the folders that are searched for public sets, in this order."""
    places = [Path(os.environ["POTLUCK_DATA"]).expanduser()] if os.environ.get("POTLUCK_DATA") else []
    places.append(Path.cwd().parent / "shared" / "datasets")
    checkout = Path(__file__).resolve().parents[3]
    if (checkout / "pyproject.toml").exists():
        places.append(checkout.parent / "shared" / "datasets")
    cache = os.environ.get("XDG_CACHE_HOME")
    places.append((Path(cache) if cache else Path("~/.cache").expanduser()) / "potluck")
    return places


def find(name: str) -> Path | None:
    """Find the file of a public set: <root>/<name>/<name>.npz or <root>/<name>.npz."""
    file = PUBLIC[name].file or name
    for root in roots():
        for place in (root / file / f"{file}.npz", root / f"{file}.npz"):
            if place.is_file():
                return place
    return None


def _public(name: str) -> Dataset:
    public = PUBLIC[name]
    path = find(name)
    if path is None and "watch_exercises" in (name, public.file):
        package = exercises.installed()
        if package is not None:
            return public.build(exercises.read(package))
    if path is None:
        raise Missing(
            Code.DATA_ABSENT,
            f"data: the dataset {name!r} is not on this machine; it comes from {public.origin}. Put "
            f"{public.file or name}.npz (its arrays: docs/data.md) into the folder that $POTLUCK_DATA names, "
            "into ../shared/datasets, or into ~/.cache/potluck.",
        )
    return _built(name, path)


def _built(name: str, path: Path) -> Dataset:
    arrays = read_npz(path)
    try:
        return PUBLIC[name].build(arrays)
    except KeyError as fault:
        raise BadInput(Code.DATA_ARRAY, f"{path}: the array {fault.args[0]!r} of the set {name} is missing.") from fault
