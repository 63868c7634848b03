"""Accuracies by method, seed and client: the plain form that the statistics read.

The statistics (`pairs`, `gains`, `ranks`, `power`) know nothing of runs. `of_groups` is the one place that takes
accuracies from runs, so other figures (those at an equal budget, those of a variant of a method) need only another
`mean` and `clients`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from potluck.metrics import words
from potluck.report.reading.groups import Group
from potluck.report.reading.run_figures import RunFigures

AT_THE_END = "{} at the end of each run"

BySeed = Mapping[int, float]


@dataclass(frozen=True)
class Scores:
    """What the methods reached. A method is a label: a name, a name with settings, or a variant of a method."""

    what: str  # what the accuracies are, in words
    means: Mapping[str, BySeed]  # method -> seed -> mean over clients
    clients: Mapping[str, Mapping[int, Mapping[str, float]]] = field(default_factory=dict)  # ... -> client -> accuracy
    tested: Mapping[int, Mapping[str, int]] = field(default_factory=dict)  # seed -> client -> test rows


def of_groups(
    groups: Sequence[Group],
    what: str = AT_THE_END,
    mean: Callable[[RunFigures], float | None] | None = None,
    clients: Callable[[RunFigures], Mapping[str, float]] | None = None,
) -> Scores:
    """The accuracies of finished runs: at their end, or what `mean` and `clients` read from a run."""
    what = what.format(words())
    read, each = mean or mean_of, clients or clients_of
    means: dict[str, dict[int, float]] = {}
    by_client: dict[str, dict[int, Mapping[str, float]]] = {}
    tested: dict[int, dict[str, int]] = {}
    for one in groups:
        for run in one.runs:
            value = read(run) if run.finished else None
            if value is None:
                continue
            means.setdefault(one.label, {})[run.seed] = value
            by_client.setdefault(one.label, {})[run.seed] = each(run)
            tested.setdefault(run.seed, {}).update({client.name: client.test for client in run.clients})
    return Scores(what, means, by_client, tested)


def mean_of(run: RunFigures) -> float | None:
    """The mean accuracy over clients at the last evaluation."""
    return run.last.mean if run.last else None


def clients_of(run: RunFigures) -> dict[str, float]:
    """The accuracy of each client at the last evaluation."""
    return {client.name: client.accuracy for client in run.clients if client.accuracy is not None}
