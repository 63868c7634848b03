"""Models that the server can make from its table: a client's own, and the mean of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from potluck.fleet import ClientId, Params
from potluck.methods.parts.clusterfl import vectors

if TYPE_CHECKING:
    from potluck.methods.clusterfl import State


def of(state: State, client: ClientId) -> Params:
    """The newest model that the client reported; the initial one before its first report."""
    row = state.table.place.get(client)
    return state.initial if row is None else mean(state, [row])


def centre(state: State) -> Params:
    """The mean model of the cluster with most members, of the first of equal ones; the initial one before any report.

    A client that cannot train has no model whose answers could be compared: the largest cluster is the best guess.
    """
    cluster = state.structure.cluster
    if not cluster:
        return state.initial
    most = max(sorted(set(cluster)), key=cluster.count)
    return mean(state, [i for i, one in enumerate(cluster) if one == most])


def mean(state: State, rows: Sequence[int]) -> Params:
    """The mean of these rows of the table, as a model."""
    w, rest = (part[list(rows)].mean(0) for part in (state.table.weights, state.table.buffers))
    names = [name for name in state.initial if name in state.trained]
    others = [n for n, value in state.initial.items() if n not in state.trained and value.is_floating_point()]
    return state.initial | vectors.parted(w, names, state.initial) | vectors.parted(rest, others, state.initial)
