"""`potluck audit`: attack a run, and compare what the attackers show with the epsilon that it claims."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from potluck.cli import flags, text
from potluck.errors import BadInput, Code


def audit(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="an experiment, or a run's experiment.toml")],
    share: Annotated[
        float, typer.Option("--canaries", metavar="SHARE", help="share of the clients that are canaries")
    ] = 0.5,
    as_json: flags.Json = False,
) -> None:
    """Run an experiment with canary clients, then without, and attack both.

    The exit status is 1 if an attacker shows more than the run claims.
    """
    from potluck.runs.audit import audited
    from potluck.runs.experiment import Experiment

    if not 0.0 < share <= 1.0:
        raise BadInput(Code.FLAG_VALUE, f"--canaries: must be above 0 and at most 1, got {share:g}.")
    found = audited(Experiment.read(file), share)
    shown = max(found.canaries.epsilon, found.members.epsilon if found.claimed is None else 0.0)
    if as_json:
        text.as_json(asdict(found))
    else:
        claim = "no privacy" if found.claimed is None else f"epsilon {found.claimed:.3g}"
        text.line(f"Claimed: {claim}.")
        text.line(
            f"Canaries: {found.canaries.right} of {found.canaries.guesses} guesses right, which shows epsilon of at "
            f"least {found.canaries.epsilon:.3g} (95 %)."
        )
        text.line(
            f"Membership: a training row has the smaller loss with probability {found.members.auc:.3f}, which shows "
            f"epsilon of at least {found.members.epsilon:.3g} (95 %)."
        )
    if found.claimed is not None and shown > found.claimed:
        raise typer.Exit(1)
