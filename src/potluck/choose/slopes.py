"""Whether more passes would help: what each method gained over the last quarter of its budget."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from potluck.methods import short_name
from potluck.runs.record import read
from potluck.runs.results import Run

FEWEST = 5  # evaluations that make a curve
SQL = "SELECT passes, mean FROM evaluations JOIN steps USING (step) WHERE mean IS NOT NULL ORDER BY step"


def rising(runs: Sequence[Run]) -> dict[str, float]:
    """The gain in mean accuracy over the last quarter of the passes, by method, mean over seeds."""
    gains: dict[str, list[float]] = {}
    for run in runs:
        points = [(row["passes"] or 0.0, row["mean"]) for row in read(run.folder / "run.db", SQL)]
        if len(points) < FEWEST:  # a method of few long rounds has no curve
            continue
        at, means = np.array(points).T
        before = means[np.searchsorted(at, 0.75 * at[-1], side="right") - 1]
        gains.setdefault(short_name(str(run.experiment.method["name"])), []).append(float(means[-1] - before))
    return {method: float(np.mean(values)) for method, values in gains.items()}
