"""`potluck run`: one experiment from start to end, with progress on the way."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from potluck.cli import complete, flags, text
from potluck.cli.columns import reads_own_data
from potluck.cli.errors import Stopped
from potluck.cli.progress.line import Quiet, watching
from potluck.errors import BadInput, Code
from potluck.runs.lasting import imports, lasting

if TYPE_CHECKING:
    from potluck.runs.experiment import Experiment
    from potluck.runs.results import Run


@reads_own_data()
def run(
    experiment: Annotated[
        Path | None,
        typer.Argument(metavar="EXPERIMENT.toml", help="a file with all settings; flags override it"),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            metavar="METHOD",
            help="see `potluck methods` (default: fedavg)",
            autocompletion=complete.methods,
        ),
    ] = None,
    data: flags.Data = None,
    model: flags.Model = None,
    fleet: flags.Fleet = None,
    clients: flags.Clients = None,
    cohort: flags.Cohort = None,
    rounds: flags.Rounds = None,
    budget: flags.Budget = None,
    seed: flags.Seed = None,
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="K", help="run K times, with this seed and the next ones")
    ] = 1,
    out: flags.Out = None,
    name: flags.Name = None,
    engine: flags.Engine = None,
    workers: flags.Workers = None,
    settings: flags.Set = None,
    as_json: flags.Json = False,
    quiet: flags.QuietFlag = False,
) -> None:
    """Run one experiment: a TOML file, flags, or both.

    Each run gets its own folder: the resolved experiment, everything that happened (run.db), the models, the figures
    (summary.json) and report.html. Ctrl-C stops after the current round. `potluck resume` continues from there, and
    the result is bit-identical to an uninterrupted run.
    """
    with watching(quiet) as watcher, lasting():
        with imports():
            from potluck.runs import drive

        given = {"data": data, "model": model, "fleet": fleet, "clients": clients, "rounds": rounds, "seed": seed}
        given |= {"out": out, "name": name, "engine": engine, "workers": workers}
        values, notes = flags.gathered(experiment, **given)
        values = flags.with_budget(values, budget)
        if method is not None or "method" not in values:
            values, more = flags.with_method(values, method or "fedavg")
            notes += more
        if cohort is not None:
            values["method"] = {**flags.section_of(values, "method"), "cohort": cohort}
        planned = _seeds(values, settings or [], seeds)
        if experiment is None:
            unset = [flag for flag, value in {"method": method, **given}.items() if value is None]
            notes += _defaults(planned[0], unset, settings or [])
        for note in notes:
            watcher.say(note)
        done = []
        for number, one in enumerate(planned, start=1):
            watcher.next_run(one.run.name or f"seed {one.run.seed}", number, seeds)
            with stoppable(watcher):
                done.append(finish(drive.start(one, watcher)))
    show_results(done, as_json)


def _seeds(values: dict[str, Any], settings: list[str], seeds: int) -> list[Experiment]:
    """The experiment once per seed, all checked before the first one runs."""
    from potluck.runs.experiment import Experiment, override
    from potluck.runs.needs import filled

    if seeds < 1:
        raise BadInput(Code.FLAG_VALUE, f"--seeds: must be at least 1, got {seeds}.")
    first = filled(Experiment.of(override(values, settings)))
    if seeds == 1:
        return [first]
    name = first.run.name
    return [
        first.with_(run={"seed": seed, "name": None if name is None else f"{name}-s{seed}"})
        for seed in range(first.run.seed, first.run.seed + seeds)
    ]


def _defaults(first: Experiment, unset: list[str], settings: list[str]) -> list[str]:
    """Name the defaults that decide most about a run, with the flags that change them."""
    defaults = {
        "method": ("method.name=", f'method "{first.method["name"]}"'),
        "data": ("data.source=", f'data "{first.data.source}"'),
        "fleet": ("fleet.", f'fleet "{first.fleet.devices}"'),
    }
    if first.stop.rounds is not None:
        defaults["rounds"] = ("stop.", f"{first.stop.rounds} rounds")
    shown = {
        flag: words
        for flag, (start, words) in defaults.items()
        if flag in unset and not any(one.startswith(start) for one in settings)
    }
    if not shown:
        return []
    return [f"using defaults: {', '.join(shown.values())} (change with {', '.join(f'--{flag}' for flag in shown)})."]


@contextmanager
def stoppable(watcher: Quiet) -> Iterator[None]:
    """Turn Ctrl-C into `Stopped`, which says how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        raise Stopped(None if watcher.folder is None else _continue(watcher.folder)) from None


def finish(done: Run) -> Run:
    """Write the report of a run that came to its end; raises `Stopped` for one that was interrupted."""
    from potluck import report

    if done.summary["ended"] == "interrupted":
        raise Stopped(_continue(done.folder))
    report.write([done], done.folder / "report.html")
    return done


def _continue(folder: Path) -> str:
    return f"potluck resume {shlex.quote(str(folder))}"


def show_results(done: list[Run], as_json: bool) -> None:
    """Print what the runs came to; of several seeds also their mean."""
    from potluck import report
    from potluck.cli.ranking import over_seeds

    several = report.compare(done).rows[0] if len(done) > 1 else None
    if as_json:
        summaries = [run.summary for run in done]
        text.as_json(summaries[0] if several is None else {"over_seeds": asdict(several), "runs": summaries})
        return
    for run in done:
        text.show(text.result(run))
        text.line(f"folder {run.folder}")
        text.line(f"report {run.folder / 'report.html'}")
    if several is not None:
        text.show(over_seeds(several))
