"""Compare methods on the same fleet, split and seeds, in one folder that can be resumed.

`compare_plan` plans the runs, this file checks them and carries them out, `targets` computes the time that each method
took to reach an accuracy. The report computes the other figures.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from potluck.errors import BadInput, Code
from potluck.files import lock, write_text
from potluck.methods import short_name
from potluck.runs import drive, parallel
from potluck.runs.build import build
from potluck.runs.compare_plan import Plan, Planned, of_file, plan
from potluck.runs.drive_state import NothingRan
from potluck.runs.interrupt import interruptible
from potluck.runs.manifest import figures_of
from potluck.runs.record import read
from potluck.runs.results import Run
from potluck.runs.targets import Reached, common_target, time_to_target
from potluck.runs.watcher import Watcher

__all__ = [
    "FILE", "Interrupted", "Plan", "Planned", "Reached", "Watchers", "carry_out", "check", "common_target",
    "latest_folder", "new_folder", "of_file", "plan", "state_of", "time_to_target",
]  # fmt: skip

FILE = "comparison.json"
LEFT_OUT = "left_out"  # folder with a file for each run in which no client could take part


class Interrupted(RuntimeError):
    """The user asked to stop; the comparison can be resumed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"stopped in {folder}")
        self.folder = folder


class Watchers(Protocol):
    """Watches several runs."""

    def expect(self, runs: Sequence[tuple[str, str]]) -> None:
        """Receive name and method of every run, before the first one starts."""

    def next_run(self, name: str, number: int, of: int) -> parallel.RunWatcher:
        """Return the watcher of run `name`, the number-th."""


def check(planned: Plan) -> None:
    """Build one run of every method and discard it, so that mistakes show before anything runs."""
    first = planned.runs[0].seed
    for run in planned.runs:
        if run.seed == first:
            build(run.experiment).close()


def carry_out(planned: Plan, folder: Path, watchers: Watchers, take_up: bool = False, at_a_time: int = 1) -> list[Run]:
    """Carry out all runs in one folder, `at_a_time` in parallel; `take_up` keeps finished runs and continues others.

    A run in which no client can take part is left out, and the others go on; the report says why. If that is so for
    all of them, it is an error.
    """
    if take_up:
        for run in planned.runs:
            _same(run, folder / run.name)
    count = len(planned.runs)
    watchers.expect([(run.name, run.method) for run in planned.runs])
    jobs = [partial(_carried_out, run, folder, take_up) for run in planned.runs]
    done: list[Run | None] = []
    if at_a_time > 1:
        each = [watchers.next_run(run.name, number, count) for number, run in enumerate(planned.runs, start=1)]
        done += parallel.carry_out(jobs, each, at_a_time)
    else:
        # Also here: Ctrl-C in the last round of a run does not interrupt that run, but it ends the comparison.
        with interruptible() as asked_to_stop:
            for number, (run, job) in enumerate(zip(planned.runs, jobs, strict=True), start=1):
                watcher = watchers.next_run(run.name, number, count)
                done.append(job(watcher))
                watcher.close()
                if _interrupted(done[-1]) or asked_to_stop.is_set():
                    break
    if len(done) < count or any(_interrupted(run) for run in done):
        raise Interrupted(folder)
    ran = [run for run in done if run is not None and not _why_left_out(run).exists()]
    if not ran:
        _nothing_ran(folder, planned)
    return ran


def _interrupted(run: Run | None) -> bool:
    return run is None or (not _why_left_out(run).exists() and run.summary["ended"] == "interrupted")


def _why_left_out(run: Run) -> Path:
    return run.folder.parent / LEFT_OUT / f"{run.name}.txt"


def _nothing_ran(folder: Path, planned: Plan) -> None:
    """Raise BadInput with the reason of the first run, and leave nothing behind."""
    why = _why_left_out(Run(folder / planned.runs[0].name)).read_text(encoding="utf-8")
    shutil.rmtree(folder / LEFT_OUT)
    if not any(folder.iterdir()):
        folder.rmdir()
    raise BadInput(Code.NOT_FITTING, f"run: {why}")


def _carried_out(planned: Planned, folder: Path, take_up: bool, watcher: Watcher) -> Run:
    """One run of a comparison; if no client can take part, there is no run but a file that says why."""
    why = _why_left_out(Run(folder / planned.name))
    why.unlink(missing_ok=True)
    try:
        return _run(planned, folder, take_up, watcher)
    except NothingRan as error:
        if error.code is not Code.NOT_FITTING:
            raise
        why.parent.mkdir(parents=True, exist_ok=True)
        write_text(why, str(error).removeprefix("run: "))
        watcher.say(f"{short_name(planned.method)} is left out: {error}")
        return Run(folder / planned.name)


def _run(planned: Planned, folder: Path, take_up: bool, watcher: Watcher) -> Run:
    run = Run(folder / planned.name)
    if take_up and run.folder.is_dir():
        if not (run.folder / "experiment.toml").exists():
            clear(run.folder)
        elif state_of(run) == "finished":
            return run
        else:
            return drive.resume(run.folder, watcher)
    return drive.start(planned.experiment.with_(run={"out": str(folder), "name": planned.name}), watcher)


def clear(folder: Path) -> None:
    """Remove the folder of a run that was killed before it wrote its experiment; never anything else."""
    if any(not path.name.startswith(".") for path in folder.iterdir()):
        raise BadInput(
            Code.OUTPUT_PLACE,
            f"compare: {str(folder)!r} is not a run. Move it or choose another --name.",
        )
    shutil.rmtree(folder)


def _same(planned: Planned, folder: Path) -> None:
    """Raise BadInput unless the folder holds a run of the same experiment."""
    if not (folder / "experiment.toml").exists():
        return
    there, here = (figures_of(experiment) for experiment in (Run(folder).experiment, planned.experiment))
    for key in sorted(there.keys() | here.keys()):
        if there.get(key) != here.get(key):
            raise BadInput(
                Code.COMPARISON,
                f"--resume: {str(folder)!r} was made with {key} = {there.get(key)!r}, got {here.get(key)!r} now. "
                "Choose another --name to start again.",
            )


def new_folder(out: Path, name: str) -> Path:
    """Return the first unused folder: name, name-2, name-3 ..."""
    number = _last(out, name) + 1
    return out / (name if number == 1 else f"{name}-{number}")


def latest_folder(out: Path, name: str) -> Path:
    """Return the newest of these folders, or the first one if there is none yet."""
    number = _last(out, name)
    return out / (name if number <= 1 else f"{name}-{number}")


def _last(out: Path, name: str) -> int:
    number = 0
    while (out / (name if number == 0 else f"{name}-{number + 1}")).exists():
        number += 1
    return number


def state_of(run: Run) -> str:
    """Return finished, paused, interrupted (by Ctrl-C), killed (by anything else) or running."""
    place = run.folder / ".lock"
    if place.exists():
        with place.open() as file:
            if not lock(file, shared=True):
                return "running"
    if not run.finished:
        return "killed"
    summary = run.summary
    if summary["ended"] in ("interrupted", drive.PAUSED):
        return str(summary["ended"])
    (row,) = read(run.folder / "run.db", "SELECT max(step) AS step FROM steps")
    # The run was made longer after the summary was written, and did not reach its new end.
    return "finished" if row["step"] == summary["steps"] else "killed"
