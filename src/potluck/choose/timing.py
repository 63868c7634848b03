"""How long the comparison will take here: one pass of each method is timed, and the slowest methods are left out.

The one pass also shows whether a method runs on this data at all.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping

from potluck.choose.proposal import Proposal
from potluck.errors import BadInput
from potluck.runs import drive
from potluck.runs.experiment import Experiment

ALWAYS = ("local", "fedavg", "ftl")  # kept whatever they take: cheap, and the others are measured against them


def seconds_per_pass(experiment: Experiment) -> float:
    """Wall time of one pass over each client's samples, in a run that leaves nothing behind."""
    with tempfile.TemporaryDirectory(prefix="potluck-") as folder:
        short = experiment.with_(
            budget={"local_passes": 1.0}, run={"out": folder, "name": "one-pass", "evaluate_every": 1000}
        )
        summary = drive.start(short).summary
    return float(summary["wall_seconds"]) / max(1e-3, float(summary["local_passes"]))


def within(
    proposal: Proposal,
    experiments: Mapping[str, Experiment],
    seconds: float,
    runs_each: float,
    say: Callable[[str], None],
) -> Proposal:
    """Leave out what does not run on this data, then the slowest methods until the rest takes at most `seconds`.

    `runs_each` is how many whole runs each method needs, those of tuning included, divided by the runs at a time.
    """
    need: dict[str, float] = {}
    for name in proposal.names:
        say(f"timing one pass of {name}")
        try:
            need[name] = seconds_per_pass(experiments[name]) * proposal.passes * runs_each
        except BadInput as error:
            if name in ALWAYS:
                raise
            proposal = proposal.without(name, f"it does not run on this data: {error}")
    while sum(need.values()) > seconds:
        slow = {name: value for name, value in need.items() if name not in ALWAYS}
        if not slow:
            break
        name = max(slow, key=lambda one: slow[one])
        minutes = need.pop(name) / 60
        proposal = proposal.without(
            name, f"it would take about {minutes:.0f} of the {seconds / 60:.0f} minutes. Raise --minutes to include it."
        )
    return proposal
