"""`potluck choose`: which method to use on data that nobody prepared, from one command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from potluck.cli import flags, text
from potluck.cli.columns import reads_own_data
from potluck.cli.compare import Jobs, Outcome, Resume, carry_out, new_or_latest, show_advice, tuned
from potluck.cli.progress.board import Board
from potluck.cli.progress.line import Quiet, watching
from potluck.errors import Code, must_be

if TYPE_CHECKING:
    from potluck.choose.advice import Advice
    from potluck.choose.facts import Facts
    from potluck.choose.proposal import Proposal, Reasoned
    from potluck.report import Row
    from potluck.runs.compare import Plan

FILE, PROPOSAL = "choice.json", "proposal.json"
EPOCHS = 2  # of a round, for all methods: the same passes in as many rounds
HALF = "half-the-rows"  # folder inside the one of the choice


@reads_own_data()
def choose(
    ctx: typer.Context,
    data: Annotated[str, typer.Argument(metavar="DATA", help="a path or the name of a dataset, see `potluck data`")],
    fleet: flags.Fleet = None,
    clients: flags.Clients = None,
    model: flags.Model = None,
    minutes: Annotated[
        float, typer.Option("--minutes", metavar="N", min=0.1, max=10_000, help="wall time to aim at")
    ] = 10.0,
    seeds: Annotated[int, typer.Option("--seeds", metavar="K", min=1, max=100, help="seeds per method")] = 3,
    trials: Annotated[
        int, typer.Option("--trials", metavar="N", min=0, max=1000, help="settings to try per method; 0: do not tune")
    ] = 6,
    out: flags.Out = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="name of the folder (default: choose-DATA)")
    ] = None,
    jobs: Jobs = 2,
    settings: flags.Set = None,
    resume: Resume = False,
    as_json: flags.Json = False,
    quiet: flags.QuietFlag = False,
) -> None:
    """Look at the data and the devices, propose methods, tune them lightly, compare them, and recommend one.

    Every proposal comes with its reason, and every method gets the same budget. Settings are tuned on validation rows.
    The recommendation says how sure it is, what the method costs, and what would change the answer.
    """
    if trials == 1:
        raise must_be(Code.FLAG_VALUE, "--trials", "0, or 2 and more", trials)
    with watching(quiet, Board) as watcher:
        given = {"data": data, "model": model, "fleet": fleet, "clients": clients}
        values, _ = flags.gathered(None, **given, out=out)
        work = _Choice(ctx, values, settings or [], minutes, seeds, trials, jobs, watcher, resume, name)
        work.look()
        if not (quiet or as_json):
            show_proposal(work.facts, work.proposal)
        work.carry_out()
    if as_json:
        text.as_json(work.json())
    else:
        work.outcome.show(work.outcome.comparison.notes, advice=False)
        show_advice(work.advice)
        text.line(f"again   {work.command}")


class _Choice:
    """One choice, step by step: look, propose, time, tune, compare, advise."""

    facts: Facts
    proposal: Proposal
    outcome: Outcome
    advice: Advice

    def __init__(
        self, ctx: typer.Context, values: dict[str, Any], settings: Sequence[str], minutes: float, seeds: int,
        trials: int, jobs: int, watcher: Quiet, resume: bool, name: str | None,
    ) -> None:  # fmt: skip
        self.ctx, self.values, self.settings = ctx, values, list(settings)
        self.minutes, self.seeds, self.trials, self.jobs = minutes, seeds, trials, jobs
        self.watcher, self.resume = watcher, resume
        self.stem = Path(str(values["data"]["source"]).partition(":")[0]).stem or "data"
        out = str(values.get("run", {}).get("out", "runs"))
        self.folder = new_or_latest(out, name or f"choose-{self.stem}", resume)

    def look(self) -> None:
        """Read the data card and the fleet, and propose; a resumed choice keeps its proposal."""
        from potluck.choose.facts import facts
        from potluck.choose.proposal import propose
        from potluck.files import write_json
        from potluck.runs.experiment import Experiment, override

        first = Experiment.of(override({**self.values, "method": {"name": "fedavg"}}, self.settings))
        self.facts = facts(first)
        self.proposal = propose(self.facts)
        path = self.folder / PROPOSAL
        if self.resume and path.exists():
            kept = json.loads(path.read_text(encoding="utf-8"))
            for one in self.proposal.names:
                if one not in kept["methods"]:
                    self.proposal = self.proposal.without(one, kept["left_out"].get(one, "it was left out before."))
            return
        self.proposal = self._within_minutes()
        self.folder.mkdir(parents=True, exist_ok=True)
        left_out = {one.what: one.why for one in self.proposal.left_out}
        write_json(path, {"methods": self.proposal.names, "left_out": left_out})

    def _within_minutes(self) -> Proposal:
        from potluck.choose.timing import within

        planned = self._plan(1)
        experiments = {run.method: run.experiment for run in planned.runs}
        # Tuning takes about two whole runs, and half of the rows a third of the comparison.
        runs_each = (self.seeds * 4 / 3 + (2 if self.trials else 0)) / self.jobs
        return within(self.proposal, experiments, 60 * self.minutes, runs_each, self.watcher.say)

    def _plan(self, seeds: int, names: Sequence[str] | None = None, **partition: Any) -> Plan:
        from potluck.runs import compare as comparisons

        values = {**self.values, "budget": {"local_passes": self.proposal.passes}}
        values["method"] = {"recipe": {"epochs": EPOCHS}}
        if self.proposal.server_share:
            values["server"] = {"share": self.proposal.server_share}
        values["partition"] = {**flags.section_of(values, "partition"), **partition}
        return comparisons.plan(values, names or self.proposal.names, seeds, self.settings)

    def carry_out(self) -> None:
        """Tune, compare, compare once more with half of the rows, and advise."""
        from potluck.choose.advice import advise
        from potluck.files import write_json
        from potluck.report.figures.slopes import rising
        from potluck.report.reading.groups import group

        planned, found = self._tuned()
        self.outcome = self._compared(planned, self.folder, None, found)
        fewer = self._with_half(found)
        self.advice = advise(self.outcome.comparison, self.facts, rising(group(self.outcome.runs).groups), fewer)
        write_json(self.folder / FILE, self.json())

    def _tuned(self) -> tuple[Plan, Mapping[str, Any] | None]:
        from potluck.tune.request import Request

        planned = self._plan(self.seeds)
        if not self.trials:
            return planned, None
        request = Request(trials=self.trials, seeds=1)
        return tuned(self.ctx, planned, self.folder, request, [], self.watcher, self.resume, self.jobs)

    def _with_chosen(self, planned: Plan, found: Mapping[str, Any] | None) -> Plan:
        """The runs with tuned settings, on the split that the tuning had."""
        from potluck.tune.request import Request
        from potluck.tune.result import with_chosen
        from potluck.tune.tuning import split_fixed

        return planned if found is None else with_chosen(split_fixed(planned, Request(seeds=1)), found)

    def _compared(
        self, planned: Plan, folder: Path, title: str | None, found: Mapping[str, Any] | None = None
    ) -> Outcome:
        tuning = None if found is None else dict(found)
        return carry_out(self.ctx, planned, folder, self.watcher, self.resume, title, None, self.jobs, tuning)

    def _with_half(self, found: Mapping[str, Any] | None) -> Sequence[Row]:
        """The best two methods and local training with half of the labelled rows."""
        half = self.facts.rows // 2
        if half < 4:
            return ()
        names = list(dict.fromkeys([*(row.name for row in self.outcome.comparison.rows[:2]), "local"]))
        planned = self._with_chosen(self._plan(self.seeds, names, most_rows=half), found)
        return self._compared(planned, self.folder / HALF, f"half of the rows of {self.stem}").comparison.rows

    @property
    def command(self) -> str:
        args = [arg for arg in self.ctx.meta["arguments"] if arg != "--resume"]
        return shlex.join(["potluck", *args])

    def json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "recommendation": asdict(self.advice),
            "facts": asdict(self.facts),
            "proposal": asdict(self.proposal),
            "command": self.command,
            "comparison": str(self.folder / "comparison.json"),
            "report": str(self.outcome.report),
        }


def show_proposal(facts: Facts, proposal: Proposal) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column()

    def rows(title: str, reasoned: Sequence[Reasoned]) -> None:
        for number, one in enumerate(reasoned):
            table.add_row(Text(f"{title if number == 0 else '':9}{one.what}", style="bold"), Text(one.why))

    rows("", proposal.around)
    rows("compare", proposal.methods)
    rows("leave out", proposal.left_out)
    text.show(table)
    text.show("")
