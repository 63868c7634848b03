"""`potluck demo`: a small end-to-end example on real data."""

from __future__ import annotations

from typing import Annotated

import typer

from potluck.cli import flags, text
from potluck.cli.compare import Jobs, Resume, carry_out, new_or_latest
from potluck.cli.progress.board import Board
from potluck.cli.progress.line import watching


def demo(
    ctx: typer.Context,
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="folder that holds the runs")] = "runs",
    seeds: Annotated[int, typer.Option("--seeds", metavar="K", help="seeds per method")] = 2,
    jobs: Jobs = 2,
    quick: Annotated[
        bool, typer.Option("--quick", help="a few virtual seconds and one seed, to see that it works")
    ] = False,
    resume: Resume = False,
    as_json: flags.Json = False,
    quiet: flags.QuietFlag = False,
) -> None:
    """Eight methods where people have little labelled data, on real Apple Watch data, in about a minute.

    The methods are clusterfl, echopfl, fedconv, fedcfc and centaur, with ftl, fedavg and local training only. Ten
    people did seven shoulder exercises with each arm, with a watch on the wrist. Each arm is a client with its own
    device, from microcontroller to PC, and with two minutes of labelled data. All methods get the same virtual time,
    and settings that `potluck tune` chose on validation rows. The result is a table, a summary in words, report.html
    and figures. Everything is simulated on this machine and nothing is downloaded.
    """
    with watching(quiet, Board) as watcher:
        from potluck import demo as demonstration

        planned = demonstration.plan(out, 1 if quick else seeds, demonstration.QUICK_SECONDS if quick else None)
        watcher.tell(demonstration.welcome(planned))
        folder = new_or_latest(out, "demo", resume)
        outcome = carry_out(ctx, planned, folder, watcher, resume, demonstration.TITLE, None, jobs)
        findings = demonstration.findings(outcome.comparison, outcome.runs)
    if as_json:
        text.as_json({**outcome.json(), "findings": findings})
    else:
        outcome.show(findings)
