"""The recommendation of `potluck choose`: that of the report, and what the choice found out besides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from potluck.choose.facts import Facts
from potluck.report import Comparison, Row
from potluck.report.figures.advice import Advice, Beyond
from potluck.report.figures.advice import advise as advise_on

__all__ = ["Advice", "advise"]


def advise(comparison: Comparison, facts: Facts, rising: Mapping[str, float], fewer: Sequence[Row] = ()) -> Advice:
    """Recommend a method; `fewer` are the rows of a small comparison with half of the labelled rows, best first."""
    found = advise_on(comparison, Beyond(facts.clients, rising, facts.rows, fewer))
    assert found is not None  # a choice compares several methods, and all have finished
    return found
