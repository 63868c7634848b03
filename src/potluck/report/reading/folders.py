"""Find runs on disk: a folder is a run, or it holds runs, or it holds comparisons that hold runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from potluck.errors import BadInput, Code
from potluck.runs.results import Run


def run_folders(folder: Path) -> list[Path]:
    """The folder itself if it is a run; else the runs in it, also those of a comparison in it."""
    if (folder / "experiment.toml").is_file():
        return [folder]
    return sorted(path.parent for depth in ("*", "*/*") for path in folder.glob(f"{depth}/experiment.toml"))


def runs_in(folders: Iterable[Path], command: str) -> list[Run]:
    """Every run in these folders, each once; raises BadInput in the name of the command if there is none."""
    given = list(folders)
    found = [path for folder in given for path in run_folders(folder)]
    if not found:
        places = ", ".join(repr(str(path)) for path in given[:3]) + (" …" if len(given) > 3 else "")
        raise BadInput(Code.RUN_ABSENT, f"{command}: no run in {places}; `potluck runs` lists them.")
    return [Run(path) for path in dict.fromkeys(found)]
