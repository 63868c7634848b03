"""A comparison as plain values, for comparison.json: scores as people read them, not as merits."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from potluck.metrics import Metric
from potluck.report.figures.comparison import Comparison

_SCORES = ("accuracy", "at_time", "at_passes", "area", "able_accuracy", "worst_tenth", "worst_client")
_INFERS = ("accuracy", "trained", "received", "own", "untrained_accuracy")


def plain(found: Comparison) -> dict[str, Any]:
    """All figures. An error is positive here, under its own name; differences keep their sign: plus is better."""
    values = asdict(found) | {"metric": found.metric.name}
    if not found.metric.lower:
        return values
    for row in (*values["rows"], *values["own"]):
        row |= {name: _spread(row[name], found.metric) for name in _SCORES}
        row[found.metric.name] = row.pop("accuracy")
        row[f"able_{found.metric.name}"] = row.pop("able_accuracy")
    for line in values["infers_with"]:
        line |= {name: None if line[name] is None else found.metric.merit(line[name]) for name in _INFERS}
    return values


def _spread(one: dict[str, float | None] | None, metric: Metric) -> dict[str, float | None] | None:
    """A mean with its interval, whose ends change places."""
    if one is None:
        return None
    ends = {"mean": one["mean"], "low": one["high"], "high": one["low"]}
    return one | {name: None if value is None else metric.merit(value) for name, value in ends.items()}
