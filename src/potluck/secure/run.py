"""A whole secure sum in one process: for tests, measurements, and simulations that ask for it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from potluck.secure.client import SumClient
from potluck.secure.server import SumServer


def secure_sum(
    vectors: Mapping[str, NDArray[np.uint32] | None], dropout: float = 0.3, corrupt: float = 0.1, number: str = "0"
) -> tuple[NDArray[np.uint32], list[str]]:
    """The sum of the vectors modulo 2^32, and whose are in it. None is a client that goes after it gave its shares."""
    clients = {name: SumClient(name, number) for name in vectors}
    server = SumServer(list(vectors), number, dropout, corrupt)
    known = server.neighbours({name: client.keys() for name, client in clients.items()})
    threshold = server.graph.threshold
    held = server.held({name: clients[name].shares(others, threshold) for name, others in known.items()})
    for name, vector in vectors.items():
        if vector is not None:
            server.add(name, clients[name].masked(vector, held[name]))
    opened = {name: clients[name].opened(stayed, gone) for name, (stayed, gone) in server.asks().items()}
    return server.total(opened), server.stayed
