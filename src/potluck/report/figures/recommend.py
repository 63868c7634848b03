"""The recommendation of a report, from its groups of runs."""

from __future__ import annotations

from collections.abc import Sequence

from potluck.report.figures.advice import Advice, Beyond, advise
from potluck.report.figures.comparison import Comparison, fleet_of
from potluck.report.figures.slopes import rising
from potluck.report.reading.groups import Group
from potluck.report.reading.tuning import tuning_of


def recommend(groups: Sequence[Group], found: Comparison) -> Advice | None:
    """Which method to use; None where there is nothing to choose between."""
    runs = [one for each in groups for one in each.runs]
    known = Beyond(
        max(found.clients, fleet_of(runs)), rising(groups), tuned=tuning_of(one.folder for one in runs) is not None
    )
    return advise(found, known)
