"""`potluck runs` and `potluck report`: what runs there are, and their report."""

from __future__ import annotations

import json
import sqlite3
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from potluck.cli import flags, say
from potluck.errors import BadInput, Code
from potluck.units import plural

if TYPE_CHECKING:
    from potluck.report import Comparison
    from potluck.runs.results import Run


def write(done: Sequence[Run], path: Path, title: str | None = None) -> Path:
    from potluck import report as reporting

    return reporting.write(done, path, title)


def figures(done: Sequence[Run], folder: Path) -> list[Path]:
    from potluck import report as reporting

    folder.mkdir(parents=True, exist_ok=True)

    return reporting.write_figures(done, folder)


def compared(done: Sequence[Run]) -> Comparison:
    from potluck import report as reporting

    return reporting.compare(done)


def runs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="the folder that holds the runs")] = Path("runs"),
    as_json: flags.Json = False,
) -> None:
    """List the runs in a folder: finished, interrupted (by Ctrl-C), killed or running, and their accuracy.

    `potluck resume` goes on with what was interrupted or killed.
    """
    if not folder.is_dir():
        raise BadInput(Code.RUN_ABSENT, f"runs: there is no folder {str(folder)!r}; `potluck run` makes one.")
    rows = [_line(path, folder) for path in folders(folder)]
    if as_json:
        say.as_json(rows)
        return
    if not rows:
        say.show(f"No runs in {folder}.")
        return
    table = say.sheet("run", "state", "method", "data", ">seed", ">round", ">accuracy")
    for row in rows:
        accuracy = "" if row["accuracy"] is None else f"{row['accuracy']:.3f} ± {row['std']:.3f}"
        known = (row[name] for name in ("run", "state", "method", "data", "seed", "round"))
        table.add_row(*("" if value is None else str(value) for value in known), accuracy)
    say.show(table)


def report(
    chosen: Annotated[list[Path], typer.Argument(metavar="RUN", help="folders of runs, or of a comparison")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="report.html in that folder otherwise")
    ] = None,
    pictures: Annotated[
        Path | None, typer.Option("--figures", metavar="DIR", help="write the figures as PNG files too")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="open it in the browser")] = False,
) -> None:
    """Write the report of one or several runs: one HTML file that needs no network.

    Several runs are compared; a folder that holds runs stands for all of them.
    """
    done = chosen_runs("report", chosen)
    parent = chosen[0] if len(chosen) == 1 else done[0].folder.parent
    path = out or parent / "report.html"
    if path.is_dir() or not path.parent.is_dir():
        raise BadInput(Code.OUTPUT_PLACE, f"--out: {str(path)!r} given, a file in a folder that exists is needed.")
    written = write(done, path, None)
    say.line(f"report  {written}")
    if pictures is not None:
        made = figures(done, pictures)
        say.line(f"figures {pictures} ({plural(len(made), 'picture')})")
    if show:
        webbrowser.open(written.resolve().as_uri())


def chosen_runs(what: str, chosen: Sequence[Path]) -> list[Run]:
    """The runs that folders stand for, each once; none at all is refused in the name of the command."""
    from potluck.runs.results import Run

    found = [path for given in chosen for path in folders(given)]
    if not found:
        raise BadInput(
            Code.RUN_ABSENT,
            f"{what}: no run in {say.some([repr(str(path)) for path in chosen])}; `potluck runs` lists them.",
        )
    return [Run(path) for path in dict.fromkeys(found)]


def folders(folder: Path) -> list[Path]:
    """The folder itself where it is a run; else the runs in it, also those in a comparison's folder."""
    if (folder / "experiment.toml").is_file():
        return [folder]
    return sorted(path.parent for depth in ("*", "*/*") for path in folder.glob(f"{depth}/experiment.toml"))


def _line(path: Path, base: Path) -> dict[str, Any]:
    """What is known of a run, which may be half-written or broken."""
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
