"""Methods that a comparison left out because no client could take part: `left_out/NAME.txt` in its folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from potluck.runs.compare import LEFT_OUT
from potluck.units import listed


def left_out(folders: Iterable[Path]) -> list[str]:
    """A sentence for each method and reason, with the seeds, for the comparison that these runs belong to."""
    found: dict[tuple[str, str], list[str]] = {}
    for parent in dict.fromkeys(folder.parent for folder in folders):
        for path in sorted((parent / LEFT_OUT).glob("*.txt")):
            method, _, seed = path.stem.rpartition("-s")
            found.setdefault((method, path.read_text(encoding="utf-8").strip()), []).append(seed)
    return [
        f"{method} did not run ({'seed' if len(seeds) == 1 else 'seeds'} {listed(seeds)}): {why}"
        for (method, why), seeds in found.items()
    ]
