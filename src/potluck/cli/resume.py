"""`potluck resume`: continue a run that was stopped or killed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from potluck.cli import flags
from potluck.cli.progress.line import watching
from potluck.cli.run import finish, show_results, stoppable
from potluck.runs.lasting import imports, lasting


def resume(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="the folder of a run")],
    rounds: Annotated[
        int | None, typer.Option("--rounds", metavar="N", help="continue until this round instead")
    ] = None,
    as_json: flags.Json = False,
    quiet: flags.QuietFlag = False,
) -> None:
    """Continue a run that was stopped or killed; the result is bit-identical to an uninterrupted run.

    A finished run stays as it is, unless --rounds asks for more rounds.
    """
    with watching(quiet) as watcher, stoppable(watcher), lasting():
        with imports():
            from potluck.runs import drive

        stop = {} if rounds is None else {"rounds": rounds}
        done = finish(drive.resume(folder, watcher, **stop))
    show_results([done], as_json)
