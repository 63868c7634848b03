"""Models that the server can make from its table: a client's own, and the mean of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from potluck.fleet import ClientId, Params
from potluck.methods.parts.clusterfl import vectors

if TYPE_CHECKING:
    from potluck.methods.clusterfl import State


def of(state: State, client: ClientId) -> Params:
    """The newest model that the client reported; the initial one before its first report."""
    row = state.table.place.get(client)
    return state.initial if row is None else mean(state, [row])


def centre(state: State, client: ClientId) -> Params | None:
    """The centre of the client's cluster, to which the coupling pulls it: its row of F F^T weighs the models.

    A client that never reported has no row: it gets the mean model of the cluster with most members, of the first of
    equal ones. While no F is known that is the mean of all. None before any report.
    """
    cluster, place = state.structure.cluster, state.table.place.get(client)
    if not cluster:
        return None
    f = state.structure.F
    row = f @ f[place] if place is not None and state.structure.learned >= 0 else torch.zeros(len(cluster))
    if float(row.sum()) > 0:
        return weighted(state, row / row.sum())
    if state.structure.learned < 0:
        return mean(state, range(len(cluster)))
    most = max(sorted(set(cluster)), key=cluster.count) if place is None else cluster[place]
    return mean(state, [i for i, one in enumerate(cluster) if one == most])


def mean(state: State, rows: Sequence[int]) -> Params:
    """The mean of these rows of the table, as a model."""
    return _model(state, *(part[list(rows)].mean(0) for part in (state.table.weights, state.table.buffers)))


def weighted(state: State, shares: Tensor) -> Params:
    """The rows of the table, each counted by its share, as a model."""
    return _model(state, *(shares @ part for part in (state.table.weights, state.table.buffers)))


def _model(state: State, w: Tensor, rest: Tensor) -> Params:
    names = [name for name in state.initial if name in state.trained]
    others = [n for n, value in state.initial.items() if n not in state.trained and value.is_floating_point()]
    return state.initial | vectors.parted(w, names, state.initial) | vectors.parted(rest, others, state.initial)
