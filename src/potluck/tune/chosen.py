"""Tune the methods of a plan in a folder and write what was found; read it where it is there already."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from potluck import methods
from potluck.runs.compare import Plan, Watchers
from potluck.tune import result, tuning
from potluck.tune.request import Request, spaces_for


def tuned(
    planned: Plan, request: Request, folder: Path, watchers: Watchers, *, space: Sequence[str] = (),
    take_up: bool = False, at_a_time: int = 1, say: Callable[[str], None] = lambda sentence: None,
) -> dict[str, Any]:  # fmt: skip
    """Choose the settings of the plan's methods on validation rows; return what tuning.json holds."""
    known = {run.method: methods.load(run.method) for run in planned.runs}
    prepared = tuning.prepared(request, planned, spaces_for(known, space))
    tuning.check(prepared, folder)
    searched = tuning.carry_out(prepared, folder, watchers, take_up, at_a_time, say)
    return result.written(prepared, searched, folder)


def kept(planned: Plan, request: Request, folder: Path, watchers: Watchers, at_a_time: int = 1) -> dict[str, Any]:
    """What tuning.json of the folder holds; without that file, tune or continue to tune.

    For scripts that always ask for the same: what the folder was made for is not checked again once it is finished.
    """
    path = folder / result.FILE
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found
    return tuned(planned, request, folder, watchers, take_up=folder.exists(), at_a_time=at_a_time)
