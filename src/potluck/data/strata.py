"""Groups of rows with similar targets: what a split and a partition use where a target is not a class."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from potluck.data.dataset import Array, Ints

BINS = 5  # of a number: a fifth of the rows each
_MARKS = 4  # significant digits in the names


def strata(target: Array) -> tuple[Ints, tuple[str, ...]]:
    """The group of each row and the names of the groups: fifths of a number, or how many labels a row has."""
    values = np.asarray(target, dtype=np.float64)
    if values.ndim == 2 and np.isin(values, (0, 1)).all():
        held, found = np.unique(values.sum(1).astype(np.int64), return_inverse=True)
        return found.astype(np.int64).reshape(-1), tuple(f"{count} labels" for count in held)
    first = values if values.ndim == 1 else values[:, 0]
    edges = np.unique(np.quantile(first, np.linspace(0, 1, BINS + 1)))
    if len(edges) < 2:
        return np.zeros(len(first), dtype=np.int64), (f"{edges[0]:.{_MARKS}g}",)
    found = np.clip(np.searchsorted(edges, first, side="right") - 1, 0, len(edges) - 2)
    names = tuple(f"{low:.{_MARKS}g} to {high:.{_MARKS}g}" for low, high in pairwise(edges))
    return found.astype(np.int64), names
