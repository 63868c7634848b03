"""`potluck compare`: several methods on the same fleet, the same split and the same seeds."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from potluck.cli import complete, flags, text
from potluck.cli.columns import reads_own_data
from potluck.cli.errors import Stopped
from potluck.cli.progress.board import Board
from potluck.cli.progress.line import Quiet, watching
from potluck.cli.ranking import newcomers, ranking, rule
from potluck.cli.several import several
from potluck.errors import BadInput, Code
from potluck.metrics import scored_by

if TYPE_CHECKING:
    from potluck.report import Comparison
    from potluck.report.figures.advice import Advice
    from potluck.runs.compare import Plan, Reached
    from potluck.runs.experiment import Experiment
    from potluck.runs.results import Run
    from potluck.tune.request import Request

Jobs = Annotated[
    int, typer.Option("--jobs", metavar="N", min=1, max=256, help="runs at a time, each in its own process")
]
Resume = Annotated[
    bool, typer.Option("--resume", help="continue in the newest folder of that name; finished runs are kept")
]


@reads_own_data()
def compare(
    ctx: typer.Context,
    methods: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="METHOD...",
            help="see `potluck methods` (default: the methods that the file names)",
            autocompletion=complete.methods,
        ),
    ] = None,
    experiment: Annotated[
        Path | None,
        typer.Option(
            "--experiment",
            metavar="EXPERIMENT.toml",
            help="a file with settings; its section [compare] may name the methods",
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
    seeds: Annotated[int, typer.Option("--seeds", metavar="K", help="seeds per method")] = 3,
    target: Annotated[
        float | None,
        typer.Option(
            "--target",
            metavar="SCORE",
            help="report the time to this accuracy, or other score (default: chosen from the runs)",
        ),
    ] = None,
    out: flags.Out = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="name of the comparison's folder (default: compare-DATA)"),
    ] = None,
    engine: flags.Engine = None,
    workers: flags.Workers = None,
    jobs: Jobs = 1,
    settings: flags.Set = None,
    tune: Annotated[
        int | None,
        typer.Option(
            "--tune",
            metavar="N",
            help="first choose the settings of every method among N candidates, see `potluck tune`",
        ),
    ] = None,
    tune_seeds: Annotated[
        int | None, typer.Option("--tune-seeds", metavar="K", help="seeds per candidate of --tune (default: 2)")
    ] = None,
    space: flags.Space = None,
    sampler: flags.Sampler = None,
    resume: Resume = False,
    as_json: flags.Json = False,
    quiet: flags.QuietFlag = False,
) -> None:
    """Compare methods on the same fleet, the same split and the same seeds: one table, one report.

    Without --budget or --rounds every method gets 20 local passes, and rows arrive at the clients once a second.
    `--budget virtual_seconds=600` ends all runs at that time.

    `--set method.recipe.lr=0.1` applies to every method that has this setting; a note names the others.
    `--set fedprox:method.mu=0.1` applies to fedprox only. In a file, the section `[compare]` names the methods and
    their own settings: `fedprox = { "method.mu" = 0.1 }`. All runs are written to one folder, with comparison.json,
    report.html and figures. `--tune 20` chooses the settings first. After Ctrl-C, the same command with --resume
    continues.
    """
    if target is not None and not target > 0:
        raise BadInput(Code.FLAG_VALUE, f"--target: must be above 0, got {target:g}.")
    if methods == ["auto"]:
        return _auto(
            ctx, data, experiment, fleet=fleet, clients=clients, model=model, seeds=seeds, out=out, name=name,
            jobs=jobs, settings=settings, resume=resume, as_json=as_json, quiet=quiet,
        )  # fmt: skip
    with watching(quiet, Board) as watcher:
        from potluck.tune.request import request_of

        asked = several(
            watcher, experiment, methods, seeds, settings, budget=budget, cohort=cohort, data=data, model=model,
            fleet=fleet, clients=clients, rounds=rounds, seed=seed, out=out, engine=engine, workers=workers,
        )  # fmt: skip
        planned, run = asked.plan, asked.plan.runs[0].experiment.run
        _check_target(target, asked.plan.runs[0].experiment)
        folder = new_or_latest(run.out, name or run.name or f"compare-{asked.stem}", resume)
        found = None
        if tune is not None:
            request = request_of(asked.tuning, trials=tune, seeds=tune_seeds, sampler=sampler)
            planned, found = tuned(ctx, planned, folder, request, [*asked.space, *(space or [])], watcher, resume, jobs)
        elif tune_seeds is not None or space or sampler is not None:
            raise BadInput(Code.SETTINGS_CLASH, "--tune-seeds, --space, --sampler: must be left out without --tune.")
        outcome = carry_out(ctx, planned, folder, watcher, resume, None, target, jobs, found)
    if as_json:
        text.as_json(outcome.json())
    else:
        outcome.show(outcome.comparison.notes)


def tuned(
    ctx: typer.Context, planned: Plan, folder: Path, request: Request, space: Sequence[str], watcher: Quiet,
    resume: bool, jobs: int,
) -> tuple[Plan, dict[str, Any]]:  # fmt: skip
    """Tune all methods in the comparison's folder; return the runs with the chosen settings, and what was found."""
    from potluck.cli import tune
    from potluck.tune.result import PLACE, with_chosen
    from potluck.tune.tuning import split_fixed

    planned = split_fixed(planned, request)
    seed = planned.runs[0].experiment.partition["seed"]
    watcher.say(f"partition.seed is {seed} for all seeds: no trial reads a test row of this comparison.")
    found = tune.carry_out(ctx, planned, folder / PLACE, request, space, watcher, resume, jobs)
    return with_chosen(planned, found), found


def _auto(ctx: typer.Context, data: str | None, experiment: Path | None, **given: Any) -> None:
    """`potluck compare auto --data DATA`: the methods are proposed, see `potluck choose`."""
    from potluck.cli.choose import choose

    if data is None:
        raise BadInput(Code.NOT_SAID, "compare auto: must have --data, got none.")
    if experiment is not None:
        raise BadInput(Code.COMPARISON, "compare auto: must not have --experiment, because it proposes the settings.")
    choose(ctx, data, **given)


@dataclass(frozen=True)
class Outcome:
    """A finished comparison: its runs, its figures and its files."""

    folder: Path
    runs: list[Run]
    comparison: Comparison
    reached: Reached
    notes: Sequence[str]
    tuning: dict[str, Any] | None = None  # what was chosen, as in tuning.json

    @property
    def report(self) -> Path:
        return self.folder / "report.html"

    @property
    def figures(self) -> Path:
        return self.folder / "figures"

    def json(self) -> dict[str, Any]:
        from potluck.report.figures.plain import plain

        return {
            "folder": str(self.folder),
            "report": str(self.report),
            "figures": [str(path) for path in sorted(self.figures.glob("*.png"))],
            **plain(self.comparison),
            "target": self.reached.target,
            "time_to_target": self.reached.seconds,
            "to_target": self._to_target(),
            "recommendation": None if self.advice is None else asdict(self.advice),
            "notes": [*self.notes, *self.comparison.notes],
            **({} if self.tuning is None else {"tuning": self.tuning}),
        }

    def _to_target(self) -> dict[str, Any]:
        """Time, bytes and joules to the target, with intervals over the seeds that reached it."""
        from potluck.report.figures.curves import reached
        from potluck.report.reading.groups import group

        target = self.reached.target
        if target is None:
            return {}
        merit = self.comparison.metric.merit(target)
        found = {one.label: reached(one, merit) for one in group(self.runs).groups}
        return {label: None if one is None else {**asdict(one), "target": target} for label, one in found.items()}

    @cached_property
    def advice(self) -> Advice | None:
        """The recommendation, as on top of the report."""
        from potluck.report.figures.recommend import recommend
        from potluck.report.reading.groups import group

        return recommend(group(self.runs).groups, self.comparison)

    def show(self, findings: Sequence[str], advice: bool = True) -> None:
        with scored_by(self.comparison.metric):
            self._show(findings, advice)

    def _show(self, findings: Sequence[str], advice: bool) -> None:
        from potluck.report.figures.resources import resources_line

        if self.comparison.basis:
            text.show(Text(self.comparison.basis))
            text.show("")
        if self.tuning is not None:
            from potluck.cli.tune import chosen_table

            text.show(chosen_table(self.tuning))
            text.show("")
        tables = [*ranking(self.comparison, self.reached, text.console().width), newcomers(self.comparison)]
        for table in tables:
            if table is not None:
                text.show(table)
                text.show("")
        text.show(rule(max(len(row.seeds) for row in self.comparison.rows)))
        for finding in [*findings, *resources_line(self.comparison.resources)]:
            text.show(Text(f"• {finding}"))
        if advice and self.advice is not None:
            show_advice(self.advice)
        text.line(f"folder  {self.folder}")
        text.line(f"report  {self.report}")
        text.line(f"figures {self.figures / '*.png'}")
        text.line(f"page    {text.itself()} watch {shlex.quote(str(self.folder))} --open")


def _check_target(target: float | None, experiment: Experiment) -> None:
    if target is not None and target > 1:
        from potluck.runs.needs import metric_of

        if metric_of(experiment).share:
            raise BadInput(Code.FLAG_VALUE, f"--target: must be above 0 and at most 1, got {target:g}.")


def show_advice(advice: Advice) -> None:
    """Which method to use, and what would change that."""
    text.show("")
    text.show(Text("Recommendation", style="bold"))
    for sentence in advice.sentences:
        text.show(Text(sentence))
    text.show(Text("What would change it", style="bold"))
    for sentence in advice.would_change:
        text.show(Text(f"• {sentence}"))
    text.show("")


def carry_out(
    ctx: typer.Context,
    planned: Plan,
    folder: Path,
    watcher: Quiet,
    resume: bool,
    title: str | None,
    target: float | None,
    jobs: int,
    tuning: dict[str, Any] | None = None,
) -> Outcome:
    from potluck import report
    from potluck.files import write_json
    from potluck.runs import compare as comparisons

    try:
        comparisons.check(planned)
        runs = comparisons.carry_out(planned, folder, watcher, resume, jobs)
    except (KeyboardInterrupt, comparisons.Interrupted):
        raise Stopped(go_on(ctx) if folder.exists() else None) from None
    outcome = Outcome(
        folder, runs, report.compare(runs), comparisons.time_to_target(runs, target), planned.notes, tuning
    )
    report.write(runs, outcome.report, title)
    report.write_figures(runs, outcome.figures)
    write_json(folder / comparisons.FILE, outcome.json())
    return outcome


def new_or_latest(out: str, name: str, resume: bool) -> Path:
    from potluck.runs.compare import latest_folder, new_folder

    if "/" in name or name.startswith("."):
        raise BadInput(Code.FLAG_VALUE, f"--name: must be a plain folder name, got {name!r}.")
    return (latest_folder if resume else new_folder)(Path(out), name)


def go_on(ctx: typer.Context) -> str:
    args = [arg for arg in ctx.meta["arguments"] if arg != "--resume"]
    return shlex.join(["potluck", *args, "--resume"])
