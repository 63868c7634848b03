"""Who gets what beyond the clients' training rows, and whether a lead may come from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from potluck.errors import BadInput
from potluck.metrics import distance, unit
from potluck.report.reading.groups import Group
from potluck.report.reading.run_figures import RunFigures
from potluck.runs.resources import resources
from potluck.runs.results import Run
from potluck.units import listed

if TYPE_CHECKING:
    from potluck.report.figures.comparison import Row


def resources_of(one: Group) -> list[str]:
    """The resources of a method's runs: as the summary says, else by the experiment; none of a method that is gone."""
    return _of(one.runs[0]) if one.runs else []


def _of(one: RunFigures) -> list[str]:
    run = Run(one.folder)
    if run.finished and "resources" in run.summary:
        return [str(name) for name in run.summary["resources"]]
    try:
        return list(resources(one.experiment))
    except BadInput:
        return []


def resources_line(found: Mapping[str, Sequence[str]]) -> list[str]:
    """One sentence on who gets what; none if nobody gets anything."""
    some = [f"{method} {listed(list(names))}" for method, names in found.items() if names]
    if not some:
        return []
    rest = "" if len(some) == len(found) else "; the others have none"
    return [f"Resources beyond the clients' own rows: {'; '.join(some)}{rest}."]


def resource_lead(rows: Sequence[Row], found: Mapping[str, Sequence[str]]) -> list[str]:
    """A caution where the best method uses a resource that the next one lacks."""
    finished = [row for row in rows if row.finished and row.accuracy]
    if len(finished) < 2 or not finished[0].best:
        return []
    best, other = finished[:2]
    assert best.accuracy is not None
    assert other.accuracy is not None
    more = [name for name in found.get(best.method, ()) if name not in found.get(other.method, ())]
    if not more:
        return []
    lead = distance(best.accuracy.mean - other.accuracy.mean, signed=False)
    return [
        f"{best.method} leads {other.method} by {lead}{unit()}; it uses {listed(more)}, which {other.method} does not."
    ]
