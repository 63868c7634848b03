"""What a server knows of the clients that ever reported: one row each, whole matrices, nobody else's rows.

A client that does not report keeps its row; one that never reported has none; one that is let go loses hers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from potluck.errors import BadInput, Code
from potluck.fleet import ClientId


@dataclass(frozen=True)
class Report:
    """One client's news of a round."""

    client: ClientId
    weights: Tensor  # D numbers
    buffers: Tensor  # batch statistics and the like, which are no weights
    loss: Tensor
    trip: float  # seconds from the task's sending to the answer's arrival


@dataclass(frozen=True)
class Table:
    names: tuple[ClientId, ...]
    weights: Tensor  # W_MD
    buffers: Tensor
    loss: Tensor  # the last one reported
    moves: Tensor  # M x window: |loss change| over each one's own last reports, the newest last
    reports: Tensor  # how often each one reported
    trips: Tensor  # seconds of the last round trip


def empty(window: int) -> Table:
    none = torch.zeros(0)
    return Table((), torch.zeros(0, 0), torch.zeros(0, 0), none, torch.zeros(0, window), none, none)


def entered(table: Table, news: Sequence[Report]) -> Table:
    """The table after a round's reports: known clients' rows replaced, newcomers' rows added at the end."""
    if not news:
        return table
    width = table.weights.shape[1] if table.names else news[0].weights.numel()
    for one in news:
        if one.weights.numel() != width:
            raise BadInput(
                Code.METHOD_NEEDS,
                f"model: {one.client} has {one.weights.numel()} weights, the others {width}; "
                "clusterfl needs one model shape for all clients.",
            )
    table = _grown(table, [one for one in news if one.client not in set(table.names)])
    place = {name: i for i, name in enumerate(table.names)}
    at = torch.tensor([place[one.client] for one in news])
    loss = torch.stack([one.loss for one in news])
    # The first report has nothing to be compared with: its change is 0 and does not count (see `reports`).
    change = torch.where(table.reports[at] > 0, (loss - table.loss[at]).abs(), 0.0)
    return replace(
        table,
        weights=table.weights.index_copy(0, at, torch.stack([one.weights for one in news])),
        buffers=table.buffers.index_copy(0, at, torch.stack([one.buffers for one in news])),
        loss=table.loss.index_copy(0, at, loss),
        moves=table.moves.index_copy(0, at, torch.cat([table.moves[at, 1:], change[:, None]], 1)),
        reports=table.reports.index_add(0, at, torch.ones(len(at))),
        trips=table.trips.index_copy(0, at, torch.tensor([one.trip for one in news])),
    )


def _grown(table: Table, new: Sequence[Report]) -> Table:
    if not new:
        return table

    def with_rows(old: Tensor, width: int) -> Tensor:
        return torch.cat([old.reshape(len(table.names), width), torch.zeros(len(new), width)])

    def longer(old: Tensor) -> Tensor:
        return torch.cat([old, torch.zeros(len(new))])

    return Table(
        table.names + tuple(one.client for one in new),
        with_rows(table.weights, new[0].weights.numel()),
        with_rows(table.buffers, new[0].buffers.numel()),
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
