"""`potluck run` and `potluck resume`: one experiment, to its end, with something to see on the way."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from potluck.cli import flags, reports, say
from potluck.cli.troubles import Stopped
from potluck.cli.watch import Quiet, watching
from potluck.errors import BadInput, Code

if TYPE_CHECKING:
    from potluck.runs.experiment import Experiment
    from potluck.runs.results import Run


def run(
    experiment: Annotated[
        Path | None,
        typer.Argument(metavar="EXPERIMENT.toml", help="a file that says everything; flags override it"),
    ] = None,
    method: Annotated[
        str | None, typer.Option("--method", metavar="METHOD", help="see `potluck methods`; fedavg otherwise")
    ] = None,
    data: flags.Data = None,
    model: flags.Model = None,
    fleet: flags.Fleet = None,
    clients: flags.Clients = None,
    cohort: flags.Cohort = None,
    rounds: flags.Rounds = None,
    seed: flags.Seed = None,
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="K", help="K runs, with this seed and the ones after it")
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

    The run gets a folder of its own with the resolved experiment, everything that happened (run.db), the models,
    the figures (summary.json) and report.html. Ctrl-C stops after the present round; `potluck resume` goes on from
    there with the same result as if it had never stopped.
    """
    with watching(quiet) as watcher:
        values, notes = flags.gathered(
            experiment, data=data, model=model, fleet=fleet, clients=clients, rounds=rounds, seed=seed,
            out=out, name=name, engine=engine, workers=workers,
        )  # fmt: skip
        if method is not None or "method" not in values:
            values, more = flags.with_method(values, method or "fedavg")
            notes += more
        if cohort is not None:
            values["method"] = {**flags.section_of(values, "method"), "cohort": cohort}
        planned = _seeds(values, settings or [], seeds)
        if experiment is None:
            given = {"method": method, "data": data, "fleet": fleet, "rounds": rounds}
            notes += _chosen(planned[0], [name for name, value in given.items() if value is None], settings or [])
        for note in notes:
            watcher.say(note)
        done = []
        for number, one in enumerate(planned, start=1):
            watcher.next_run(one.run.name or f"seed {one.run.seed}", number, seeds)
            done.append(_finished(watcher, partial(_start, one, watcher)))
    _tell(done, as_json)


def resume(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="the folder of a run")],
    rounds: Annotated[int | None, typer.Option("--rounds", metavar="N", help="go on until this round instead")] = None,
    as_json: flags.Json = False,
    quiet: flags.QuietFlag = False,
) -> None:
    """Go on with a run that was stopped or killed; it ends with the same bits as one that never was.

    A finished run is left as it is, unless --rounds asks for more.
    """
    with watching(quiet) as watcher:
        from potluck.runs import drive

        stop = {} if rounds is None else {"rounds": rounds}
        done = _finished(watcher, lambda: drive.resume(folder, watcher, **stop))
    _tell([done], as_json)


def _seeds(values: dict[str, Any], settings: list[str], seeds: int) -> list[Experiment]:
    """The experiment once per seed, all checked before the first one runs."""
    from potluck.runs.experiment import Experiment, override

    if seeds < 1:
        raise BadInput(Code.FLAG_VALUE, f"--seeds: {seeds} given, at least 1 is needed.")
    first = Experiment.of(override(values, settings))
    if seeds == 1:
        return [first]
    called = first.run.name
    return [
        first.with_(run={"seed": seed, "name": None if called is None else f"{called}-s{seed}"})
        for seed in range(first.run.seed, first.run.seed + seeds)
    ]


def _chosen(first: Experiment, unsaid: list[str], settings: list[str]) -> list[str]:
    """What nobody said and is so by default, with the flags that say otherwise."""
    known = {
        "method": f"method {first.method['name']}",
        "data": f"data {first.data.source}",
        "fleet": f"fleet {first.fleet.devices}",
        "rounds": f"{first.stop.rounds} rounds",
    }
    places = {"method": "method.name=", "data": "data.source=", "fleet": "fleet.", "rounds": "stop."}
    shown = [name for name in unsaid if not any(one.startswith(places[name]) for one in settings)]
    if not shown:
        return []
    return [f"not said, so {', '.join(known[name] for name in shown)} ({', '.join(f'--{name}' for name in shown)})."]


def _start(experiment: Experiment, watcher: Quiet) -> Run:
    from potluck.runs import drive

    return drive.start(experiment, watcher)


def _finished(watcher: Quiet, carry_out: Callable[[], Run]) -> Run:
    """The run, once it is at its end; a stop on the way says how to go on."""
    try:
        done = carry_out()
    except KeyboardInterrupt:
        raise Stopped(None if watcher.folder is None else _go_on(watcher.folder)) from None
    if done.summary["ended"] == "interrupted":
        raise Stopped(_go_on(done.folder))
    reports.write([done], done.folder / "report.html")
    return done


def _go_on(folder: Path) -> str:
    return f"potluck resume {shlex.quote(str(folder))}"


def _tell(done: list[Run], as_json: bool) -> None:
    several = reports.compared(done).rows[0] if len(done) > 1 else None
    if as_json:
        summaries = [run.summary for run in done]
        say.as_json(summaries[0] if several is None else {"over_seeds": asdict(several), "runs": summaries})
        return
    for run in done:
        say.show(say.result(run))
        say.line(f"folder {run.folder}")
        say.line(f"report {run.folder / 'report.html'}")
    if several is not None:
        say.show(say.over_seeds(several))
