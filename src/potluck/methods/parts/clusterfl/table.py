"""What the server knows of the clients that have reported: one row per client in each matrix.

A client that misses a round keeps its row. A client that never reported has none. A client that was dropped loses its.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from potluck.errors import BadInput, Code
from potluck.fleet import Arrival, ClientId


@dataclass(frozen=True)
class Table:
    names: tuple[ClientId, ...]
    weights: Tensor  # W_MD, M clients with D weights each
    buffers: Tensor  # batch statistics and the like
    loss: Tensor  # the last loss reported
    moves: Tensor  # M x window: |loss change| over the last reports of each client, the newest last
    reports: Tensor  # how often each client reported
    trips: Tensor  # seconds of the last round trip

    @cached_property
    def place(self) -> dict[ClientId, int]:
        """The row of each client."""
        return {name: i for i, name in enumerate(self.names)}


def empty(window: int) -> Table:
    none = torch.zeros(0)
    return Table((), torch.zeros(0, 0), torch.zeros(0, 0), none, torch.zeros(0, window), none, none)


def trip(arrival: Arrival) -> float:
    """Seconds from sending the task to the arrival of its answer."""
    return arrival.at - arrival.sent


def entered(table: Table, arrivals: Sequence[Arrival]) -> Table:
    """The table after a round: replace the rows of known clients, add the rows of new clients at the end.

    Each update has `weights` (D numbers), `buffers` and `loss`.
    """
    if not arrivals:
        return table
    updates = [arrival.update for arrival in arrivals]
    width = table.weights.shape[1] if table.names else updates[0].weights.numel()
    for arrival in arrivals:
        if arrival.update.weights.numel() != width:
            raise BadInput(
                Code.METHOD_NEEDS,
                f"model: {arrival.client} has {arrival.update.weights.numel()} weights, the others have {width}. "
                "clusterfl needs one model shape for all clients.",
            )
    table = _grown(table, [arrival for arrival in arrivals if arrival.client not in set(table.names)])
    at = torch.tensor([table.place[arrival.client] for arrival in arrivals])
    loss = torch.stack([update.loss for update in updates])
    # The first report has no loss to compare with: its change is 0 and does not count (see `reports`).
    change = torch.where(table.reports[at] > 0, (loss - table.loss[at]).abs(), 0.0)
    return replace(
        table,
        weights=table.weights.index_copy(0, at, torch.stack([update.weights for update in updates])),
        buffers=table.buffers.index_copy(0, at, torch.stack([update.buffers for update in updates])),
        loss=table.loss.index_copy(0, at, loss),
        moves=table.moves.index_copy(0, at, torch.cat([table.moves[at, 1:], change[:, None]], 1)),
        reports=table.reports.index_add(0, at, torch.ones(len(at))),
        trips=table.trips.index_copy(0, at, torch.tensor([trip(arrival) for arrival in arrivals])),
    )


def _grown(table: Table, new: Sequence[Arrival]) -> Table:
    if not new:
        return table

    def with_rows(old: Tensor, width: int) -> Tensor:
        return torch.cat([old.reshape(len(table.names), width), torch.zeros(len(new), width)])

    def longer(old: Tensor) -> Tensor:
        return torch.cat([old, torch.zeros(len(new))])

    return Table(
        table.names + tuple(arrival.client for arrival in new),
        with_rows(table.weights, new[0].update.weights.numel()),
        with_rows(table.buffers, new[0].update.buffers.numel()),
        longer(table.loss),
        with_rows(table.moves, table.moves.shape[1]),
        longer(table.reports),
        longer(table.trips),
    )


def kept(table: Table, at: Tensor) -> Table:
    """Only these rows."""
    return Table(
        tuple(table.names[int(i)] for i in at),
        *(part[at] for part in (table.weights, table.buffers, table.loss, table.moves, table.reports, table.trips)),
    )
