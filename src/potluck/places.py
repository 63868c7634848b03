"""Where public sets are searched on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def roots() -> list[Path]:
    """List the folders that are searched for public sets, in this order."""
    places = [Path(os.environ["POTLUCK_DATA"]).expanduser()] if os.environ.get("POTLUCK_DATA") else []
    places.append(Path.cwd().parent / "shared" / "datasets")
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").exists():
        places.append(checkout.parent / "shared" / "datasets")
    cache = os.environ.get("XDG_CACHE_HOME")
    places.append((Path(cache) if cache else Path("~/.cache").expanduser()) / "potluck")
    return places


def archive(name: str, folders: Iterable[Path]) -> Path | None:
    """Find the file of a public set: <root>/<name>/<name>.npz or <root>/<name>.npz."""
    for root in folders:
        for place in (root / name / f"{name}.npz", root / f"{name}.npz"):
            if place.is_file():
                return place
    return None
