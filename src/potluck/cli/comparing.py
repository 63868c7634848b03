"""`potluck compare` and `potluck demo`: several methods, the same fleet, the same split, the same seeds."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from potluck.cli import flags, reports, say
from potluck.cli.board import Board
from potluck.cli.troubles import Stopped
from potluck.cli.watch import Quiet, watching
from potluck.errors import BadInput, Code

if TYPE_CHECKING:
    from potluck.report import Comparison
    from potluck.runs.compare import Plan, Reached
    from potluck.runs.results import Run

Jobs = Annotated[
    int, typer.Option("--jobs", metavar="N", min=1, max=256, help="runs at a time, each in a process of its own")
]
Resume = Annotated[
    bool, typer.Option("--resume", help="go on in the newest folder of that name: finished runs are kept")
]


def compare(
    ctx: typer.Context,
    methods: Annotated[
        list[str] | None, typer.Argument(metavar="METHOD", help="see `potluck methods`; those of the file otherwise")
    ] = None,
    experiment: Annotated[
        Path | None,
        typer.Option("--experiment", metavar="EXPERIMENT.toml", help="a file; its section [compare] names methods"),
    ] = None,
    data: flags.Data = None,
    model: flags.Model = None,
    fleet: flags.Fleet = None,
    clients: flags.Clients = None,
    cohort: flags.Cohort = None,
    rounds: flags.Rounds = None,
    seed: flags.Seed = None,
    seeds: Annotated[int, typer.Option("--seeds", metavar="K", help="seeds per method")] = 3,
    target: Annotated[
        float | None,
        typer.Option("--target", metavar="ACCURACY", help="for the time to a target; chosen from the runs otherwise"),
    ] = None,
    out: flags.Out = None,
    name: flags.Name = None,
    engine: flags.Engine = None,
    workers: flags.Workers = None,
    jobs: Jobs = 1,
    settings: flags.Set = None,
    resume: Resume = False,
    as_json: flags.Json = False,
    quiet: flags.QuietFlag = False,
) -> None:
    """Compare methods: same fleet, same split, same seeds; one table, one report.

    `--set method.recipe.lr=0.1` goes to every method that has that setting, and a note names those that have not;
    `--set fedprox:method.mu=0.1` goes to fedprox alone. A file may name the methods and what is theirs alone:
    `[compare]`, then `fedprox = { "method.mu" = 0.1 }` and so on. All runs land in one folder with comparison.json,
    report.html and figures. After Ctrl-C the same command with --resume goes on.
    """
    if target is not None and not 0 < target <= 1:
        raise BadInput(Code.FLAG_VALUE, f"--target: {target:g} given, allowed is above 0 to 1.")
    with watching(quiet, Board) as watcher:
        from potluck.runs import compare as comparisons

        values, notes = flags.gathered(
            experiment, data=data, model=model, fleet=fleet, clients=clients, rounds=rounds, seed=seed,
            out=out, engine=engine, workers=workers,
        )  # fmt: skip
        values, named, own = comparisons.of_file(values)
        methods = methods or named
        settings = [*(one for one in own if one.partition(":")[0] in methods), *(settings or [])]
        if cohort is not None:
            values["method"] = {**flags.section_of(values, "method"), "cohort": cohort}
        planned = comparisons.plan(values, methods, seeds, settings)
        for note in [*notes, *planned.notes]:
            watcher.say(note)
        section = planned.runs[0].experiment
        stem = Path(section.data.source.partition(":")[0]).stem or "data"
        folder = _folder(section.run.out, name or section.run.name or f"compare-{stem}", resume)
        title = f"{', '.join(methods)} on {stem}"
        outcome = _carried_out(ctx, planned, folder, watcher, resume, title, target, jobs)
    if as_json:
        say.as_json(outcome.json())
    else:
        outcome.tell(outcome.comparison.notes)


def demo(
    ctx: typer.Context,
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="the folder that holds the runs")] = "runs",
    seeds: Annotated[int, typer.Option("--seeds", metavar="K", help="seeds per method")] = 2,
    rounds: Annotated[int | None, typer.Option("--rounds", metavar="N", help="rounds per run")] = None,
    jobs: Jobs = 2,
    quick: Annotated[bool, typer.Option("--quick", help="a few rounds and one seed: does it work at all?")] = False,
    resume: Resume = False,
    as_json: flags.Json = False,
    quiet: flags.QuietFlag = False,
) -> None:
    """The main job in small: five systems, FedAvg and going alone on real Apple-Watch data, in about two minutes.

    Ten people did seven shoulder exercises with either arm, a watch on the wrist. Each arm of each person is a
    client with a device of its own, from microcontroller to PC. All methods see the same clients and get as many
    rounds; the end is a table, what it says in plain words, report.html and figures. Everything is simulated on
    this machine and nothing is downloaded.
    """
    with watching(quiet, Board) as watcher:
        from potluck import demo as demonstration

        if quick:
            seeds, rounds = 1, rounds or demonstration.QUICK_ROUNDS
        planned = demonstration.plan(out, seeds, rounds)
        watcher.tell(demonstration.welcome(planned))
        folder = _folder(out, "demo", resume)
        outcome = _carried_out(ctx, planned, folder, watcher, resume, demonstration.TITLE, None, jobs)
        findings = demonstration.findings(outcome.comparison, outcome.reached, outcome.runs)
    if as_json:
        say.as_json({**outcome.json(), "findings": findings})
    else:
        outcome.tell(findings)


@dataclass(frozen=True)
class _Outcome:
    """What a comparison left."""

    folder: Path
    runs: list[Run]
    comparison: Comparison
    reached: Reached
    notes: Sequence[str]

    @property
    def report(self) -> Path:
        return self.folder / "report.html"

    @property
    def figures(self) -> Path:
        return self.folder / "figures"

    def json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "report": str(self.report),
            "figures": [str(path) for path in sorted(self.figures.glob("*.png"))],
            **asdict(self.comparison),
            "target": self.reached.target,
            "time_to_target": self.reached.seconds,
            "notes": [*self.notes, *self.comparison.notes],
        }

    def tell(self, findings: Sequence[str]) -> None:
        for table in say.ranking(self.comparison, self.reached, say.console().width):
            say.show(table)
            say.show("")
        say.show(say.rule(max(len(row.seeds) for row in self.comparison.rows)))
        for finding in findings:
            say.show(Text(f"• {finding}"))
        say.line(f"folder  {self.folder}")
        say.line(f"report  {self.report}")
        say.line(f"figures {self.figures}{os.sep}*.png")
        say.line(f"page    {say.itself()} watch {shlex.quote(str(self.folder))} --open")


def _carried_out(
    ctx: typer.Context,
    planned: Plan,
    folder: Path,
    watcher: Quiet,
    resume: bool,
    title: str,
    target: float | None,
    jobs: int,
) -> _Outcome:
    from potluck.files import write_json
    from potluck.runs import compare as comparisons

    try:
        comparisons.check(planned)
        runs = comparisons.carry_out(planned, folder, watcher, resume, jobs)
    except (KeyboardInterrupt, comparisons.Interrupted):
        raise Stopped(_go_on(ctx) if folder.exists() else None) from None
    outcome = _Outcome(folder, runs, reports.compared(runs), comparisons.time_to_target(runs, target), planned.notes)
    reports.write(runs, outcome.report, title)
    reports.figures(runs, outcome.figures)
    write_json(folder / comparisons.FILE, outcome.json())
    return outcome


def _folder(out: str, name: str, resume: bool) -> Path:
    from potluck.runs.compare import latest_folder, new_folder

    if "/" in name or name.startswith("."):
        raise BadInput(Code.FLAG_VALUE, f"--name: {name!r} given, a plain folder name is allowed.")
    return (latest_folder if resume else new_folder)(Path(out), name)


def _go_on(ctx: typer.Context) -> str:
    args = [arg for arg in ctx.meta["arguments"] if arg != "--resume"]
    return shlex.join(["potluck", *args, "--resume"])
