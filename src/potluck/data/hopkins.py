"""How much the rows of a dataset form groups: the Hopkins statistic, as in ClusterFL's Table 1.

Ouyang et al., "ClusterFL", ACM TOSN 18(4), 2022, section 3: of the rows of one class, averaged over the classes. It is
0.5 for rows spread evenly over their range and near 1 for rows in groups.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist

from potluck import keys
from potluck.data.dataset import Array, Ints
from potluck.data.federation import Federation

ROWS = 400  # of a class, at most
LEAST = 20  # rows below which a class says nothing
CLIENTS = 200


def of_federation(federation: Federation) -> float | None:
    """The statistic of the clients' training rows, a mean over classes; None where all classes are too small."""
    draw = keys.rng("hopkins")
    rows = np.concatenate([federation.train_rows(i) for i in range(min(CLIENTS, len(federation)))])
    found = []
    for label in range(federation.dataset.classes):
        own = rows[federation.dataset.y[rows] == label]
        if len(own) >= LEAST:
            own = _some(own, ROWS, draw)
            x = federation.dataset.x[own].reshape(len(own), -1).astype(np.float64)
            found.append(statistic(np.nan_to_num(x), draw))
    return float(np.mean(found)) if found else None


def statistic(x: Array, draw: np.random.Generator) -> float:
    """H = sum u / (sum u + sum w): u from random points in the range of the rows to the nearest row, w between rows."""
    count = max(1, len(x) // 4)
    low, high = x.min(0), x.max(0)
    random = low + (high - low) * draw.uniform(size=(count, x.shape[1]))
    u = cdist(random, x).min(1)
    chosen = draw.choice(len(x), size=count, replace=False)
    between = cdist(x[chosen], x)
    between[np.arange(count), chosen] = np.inf
    w = between.min(1)
    total = float(u.sum() + w.sum())
    return float(u.sum()) / total if total > 0 else 0.5


def _some(rows: Ints, most: int, draw: np.random.Generator) -> Ints:
    return rows if len(rows) <= most else draw.choice(rows, size=most, replace=False)
