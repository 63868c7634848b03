"""`potluck tune`: choose the settings of methods on validation rows."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from potluck.cli import complete, flags, text
from potluck.cli.columns import reads_own_data
from potluck.cli.compare import Jobs, Resume, go_on, new_or_latest
from potluck.cli.errors import Stopped
from potluck.cli.progress.board import Board
from potluck.cli.progress.line import Quiet, watching
from potluck.cli.several import several
from potluck.metrics import ACCURACY, METRICS

if TYPE_CHECKING:
    from potluck.runs.compare import Plan
    from potluck.tune.request import Request


@reads_own_data()
def tune(
    ctx: typer.Context,
    methods: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="METHOD",
            help="see `potluck methods` (default: the methods that the file names)",
            autocompletion=complete.methods,
        ),
    ] = None,
    experiment: Annotated[
        Path | None,
        typer.Option("--experiment", metavar="EXPERIMENT.toml", help="a file with settings, as for `potluck compare`"),
    ] = None,
    data: flags.Data = None,
    model: flags.Model = None,
    fleet: flags.Fleet = None,
    clients: flags.Clients = None,
    cohort: flags.Cohort = None,
    rounds: flags.Rounds = None,
    budget: flags.Budget = None,
    seed: flags.Seed = None,
    trials: Annotated[
        int | None, typer.Option("--trials", metavar="N", help="candidates per method (default: 20)")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", metavar="K", help="seeds per candidate, from 1000 on (default: 2)")
    ] = None,
    space: flags.Space = None,
    sampler: flags.Sampler = None,
    out: flags.Out = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="name of the folder (default: tune-DATA)")
    ] = None,
    workers: flags.Workers = None,
    jobs: Jobs = 1,
    settings: flags.Set = None,
    resume: Resume = False,
    as_json: flags.Json = False,
    quiet: flags.QuietFlag = False,
) -> None:
    """Choose the settings of methods on validation rows, never on test rows, with the same compute for every method.

    Candidates are drawn from the space that each method declares (`potluck methods NAME`). All begin with a small part
    of the budget; one in three goes on. The default settings are always among them, to the end. The folder gets
    tuning.json and chosen.toml, which `potluck compare --experiment` reads. After Ctrl-C, the same command with
    --resume continues.
    """
    with watching(quiet, Board) as watcher:
        from potluck.tune.request import request_of

        asked = several(
            watcher, experiment, methods, 1, settings, budget=budget, cohort=cohort, data=data, model=model,
            fleet=fleet, clients=clients, rounds=rounds, seed=seed, out=out, workers=workers,
        )  # fmt: skip
        request = request_of(asked.tuning, trials=trials, seeds=seeds, sampler=sampler)
        run = asked.plan.runs[0].experiment.run
        folder = new_or_latest(run.out, name or run.name or f"tune-{asked.stem}", resume)
        found = carry_out(ctx, asked.plan, folder, request, [*asked.space, *(space or [])], watcher, resume, jobs)
    if as_json:
        text.as_json({"folder": str(folder), **found})
    else:
        show(found, folder)


def carry_out(
    ctx: typer.Context, planned: Plan, folder: Path, request: Request, space: Sequence[str], watcher: Quiet,
    resume: bool, jobs: int,
) -> dict[str, Any]:  # fmt: skip
    """Tune the methods of a plan in a folder, and write what was found; Ctrl-C raises `Stopped`."""
    from potluck.runs.compare import Interrupted
    from potluck.tune.chosen import tuned

    try:
        return tuned(planned, request, folder, watcher, space=space, take_up=resume, at_a_time=jobs, say=watcher.say)
    except (KeyboardInterrupt, Interrupted):
        raise Stopped(go_on(ctx) if folder.exists() else None) from None


def show(found: Mapping[str, Any], folder: Path) -> None:
    metric = METRICS[found.get("metric", ACCURACY.name)]
    text.show(chosen_table(found))
    text.show("")
    text.show(
        f"{'Accuracies are' if metric == ACCURACY else f'{metric.words}:'} means over clients and tuning seeds, on "
        "validation rows. Passes are over the samples, mean over the clients, of all trials. The range is worst to "
        "best of all candidates at the first rung."
    )
    text.line(f"folder  {folder}")
    text.line(f"chosen  {folder / 'chosen.toml'}")
    text.line(f"compare {text.itself()} compare --experiment {shlex.quote(str(folder / 'chosen.toml'))}")


def chosen_table(found: Mapping[str, Any]) -> Table:
    """A row per method: what was chosen, what it brought, what it cost, and how much the settings matter."""
    metric = METRICS[found.get("metric", ACCURACY.name)]
    table = text.sheet("method", "chosen", ">default", ">chosen", ">passes", ">trials", ">range")
    for method, one in found["methods"].items():
        matters = one["sensitivity"]
        cells = [
            metric.plain(one["default_accuracy"]),
            metric.plain(one["chosen_accuracy"]),
            f"{one['passes']:.0f}",
            str(len(one["candidates"])),
            f"{metric.plain(matters['worst'])} to {metric.plain(matters['best'])}",
        ]
        table.add_row(Text(method), Text(chosen_text(one)), *cells)
    return table


def chosen_text(one: Mapping[str, Any]) -> str:
    """The chosen settings in one line."""
    shown = ", ".join(f"{name} {flags.plain(value)}" for name, value in one["chosen"].items())
    return f"{shown} (the defaults)" if one["chosen_candidate"] == 0 else shown
