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
    rounds: Annotated[int | None, typer.Option("--rounds", metavar="N", help="rounds per run")] = None,
    jobs: Jobs = 2,
    quick: Annotated[bool, typer.Option("--quick", help="a few rounds and one seed, to see that it works")] = False,
    resume: Resume = False,
    as_json: flags.Json = False,
    quiet: flags.QuietFlag = False,
) -> None:
    """A small end-to-end example: seven methods on real Apple Watch data, in about two minutes.

    The methods are clusterfl, echopfl, fedconv, fedcfc and centaur, with fedavg and local training only as baselines.
    Ten people did seven shoulder exercises with each arm, with a watch on the wrist. Each arm of each person is a
    client with its own device, from microcontroller to PC. All methods see the same clients and get the same number of
    rounds. The result is a table, a summary in words, report.html and figures. Everything is simulated on this machine
    and nothing is downloaded.
    """
    with watching(quiet, Board) as watcher:
        from potluck import demo as demonstration

        if quick:
            seeds, rounds = 1, rounds or demonstration.QUICK_ROUNDS
        planned = demonstration.plan(out, seeds, rounds)
        watcher.tell(demonstration.welcome(planned))
        folder = new_or_latest(out, "demo", resume)
        outcome = carry_out(ctx, planned, folder, watcher, resume, demonstration.TITLE, None, jobs)
        findings = demonstration.findings(outcome.comparison, outcome.reached, outcome.runs)
    if as_json:
        text.as_json({**outcome.json(), "findings": findings})
    else:
        outcome.show(findings)
