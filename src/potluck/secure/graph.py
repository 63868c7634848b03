"""Who shares secrets with whom: each client with `degree` others, in a ring of random order (Bell et al., section 3).

The degree and the threshold are the smallest for which three things fail with a probability below 2^-40 (secrecy) and
1e-6 (the sum): more than `threshold` neighbours of an honest client work with the server; the honest clients that stay
fall apart into groups whose sums would show; fewer than `threshold` neighbours of a client stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from potluck import keys

SECRECY = 2.0**-40
FAILURE = 1e-6
FEW = 3  # fewer clients than this have no sum that hides a term


@dataclass(frozen=True)
class Graph:
    """Neighbours of each client: places in the list of clients, (n, degree), and how many shares open a secret."""

    neighbours: NDArray[np.int64]
    threshold: int

    @property
    def degree(self) -> int:
        return int(self.neighbours.shape[1])


@lru_cache(maxsize=256)
def sizes(clients: int, dropout: float, corrupt: float) -> tuple[int, int]:
    """Degree and threshold. Small groups share with all others, and a threshold of more than half."""
    from scipy.stats import hypergeom  # loading it takes as long as PyTorch, and most runs need no sums

    gone, bad = int(np.ceil(dropout * clients)), int(np.ceil(corrupt * clients))
    for degree in range(6, clients - 1, 2):
        # secrecy: so many corrupt neighbours that they open a secret, or all honest ones on a side gone or corrupt
        threshold = int(hypergeom.isf(SECRECY / clients, clients - 1, bad, degree)) + 1
        stay = hypergeom.cdf(threshold - 1, clients - 1, clients - 1 - gone, degree)
        apart = ((gone + bad) / clients) ** (degree // 2)
        if threshold <= degree and clients * stay < FAILURE and clients * apart < SECRECY:
            return degree, threshold
    degree = clients - 1
    return degree, max(1, min(degree, degree // 2 + 1, degree - gone)) if degree else 1


def graph_of(clients: int, dropout: float, corrupt: float, seed: int) -> Graph:
    """A graph of these clients. The seed may be known to all."""
    degree, threshold = sizes(clients, dropout, corrupt)
    if degree >= clients - 1:
        everyone = np.arange(clients)
        rows = np.array([np.delete(everyone, place) for place in everyone], dtype=np.int64)
        return Graph(rows.reshape(clients, max(0, clients - 1)), threshold)
    order = keys.rng(seed).permutation(clients)
    steps = np.concatenate([np.arange(1, degree // 2 + 1), -np.arange(1, degree // 2 + 1)])
    rows = np.empty((clients, degree), dtype=np.int64)
    rows[order] = order[(np.arange(clients)[:, None] + steps[None]) % clients]
    return Graph(rows, threshold)
