"""`potluck runs`: the runs in a folder, their state and their accuracy."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Annotated, Any

import typer

from potluck.cli import flags, text
from potluck.errors import BadInput, Code


def runs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="folder that holds the runs")] = Path("runs"),
    as_json: flags.Json = False,
) -> None:
    """List the runs in a folder, with their state and accuracy.

    A run is finished, running, paused (by tuning), interrupted (by Ctrl-C) or killed. `potluck resume` continues a
    paused, interrupted or killed run.
    """
    from potluck.report.reading.folders import run_folders

    if not folder.is_dir():
        raise BadInput(Code.RUN_ABSENT, f"runs: there is no folder {str(folder)!r}; `potluck run` creates one.")
    rows = [_line(path, folder) for path in run_folders(folder)]
    if as_json:
        text.as_json(rows)
        return
    if not rows:
        text.show(f"No runs in {folder}.")
        return
    table = text.sheet("run", "state", "method", "data", ">seed", ">round", ">accuracy")
    for row in rows:
        accuracy = "" if row["accuracy"] is None else f"{row['accuracy']:.3f} ± {row['std']:.3f}"
        known = (row[name] for name in ("run", "state", "method", "data", "seed", "round"))
        table.add_row(*("" if value is None else str(value) for value in known), accuracy)
    text.show(table)


def _line(path: Path, base: Path) -> dict[str, Any]:
    """One run as a row of the table; the run may be half-written or damaged."""
    from potluck.runs.compare import state_of
    from potluck.runs.record import read
    from potluck.runs.results import Run

    run = Run(path)
    name = str(path if path == base else path.relative_to(base))
    row: dict[str, Any] = dict.fromkeys(("run", "state", "method", "data", "seed", "round", "accuracy", "std"))
    row["run"] = name
    try:
        experiment = run.experiment
        row |= {
            "method": str(experiment.method["name"]),
            "data": experiment.data.source,
            "seed": experiment.run.seed,
        }
        row["state"] = state_of(run)
        sql = "SELECT round, mean, std FROM steps JOIN evaluations USING (step) ORDER BY step DESC LIMIT 1"
        for latest in read(path / "run.db", sql):
            row |= {"round": latest["round"], "accuracy": latest["mean"], "std": latest["std"]}
    except (BadInput, json.JSONDecodeError, KeyError):
        row["state"] = "unreadable"
    except sqlite3.Error:  # killed before it wrote anything
        row["state"] = row["state"] or "killed"
    return row
