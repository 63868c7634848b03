"""Whether more passes would help: what each method gained over the last quarter of its budget."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from potluck.metrics import Metric
from potluck.report.reading.groups import Group
from potluck.runs.record import Unreadable, read

FEWEST = 5  # evaluations that make a curve
SQL = "SELECT passes, mean FROM evaluations JOIN steps USING (step) WHERE mean IS NOT NULL ORDER BY step"


def rising(groups: Sequence[Group]) -> dict[str, float]:
    """The gain in mean accuracy over the last quarter of the passes, by label of the method, mean over seeds."""
    gains: dict[str, list[float]] = {}
    for one in groups:
        for run in one.counted:
            gain = _gain(run.folder, run.metric)
            if gain is not None:
                gains.setdefault(one.label, []).append(gain)
    return {method: float(np.mean(values)) for method, values in gains.items()}


def _gain(folder: Path, metric: Metric) -> float | None:
    try:
        points = [(row["passes"] or 0.0, metric.merit(row["mean"])) for row in read(folder / "run.db", SQL)]
    except Unreadable:  # a run of an older version did not count passes
        return None
    if len(points) < FEWEST:  # a method of few long rounds has no curve
        return None
    at, means = np.array(points).T
    before = means[np.searchsorted(at, 0.75 * at[-1], side="right") - 1]
    return float(means[-1] - before)
