"""Whom the server may stop asking: the two communication savers of ClusterFL.

Ouyang et al., "ClusterFL", ACM TOSN 18(4), 2022, sections 6.1 (stragglers inside a cluster) and 6.2 (clients that are
weakly related to their cluster). Both are sums within clusters, written with a 0/1 membership matrix.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

SETTLED = 1e-6  # a sum of loss changes below this is no movement


def members(cluster: Sequence[int]) -> Tensor:
    """same_MM: 1 where two clients share a cluster."""
    label = torch.tensor(cluster, dtype=torch.int64)
    return (label[:, None] == label).float()


def rates(moves: Tensor, cluster: Sequence[int]) -> Tensor:
    """gamma_q: each client's share of its cluster's loss change |loss(t) - loss(t-1)|, mean over the window."""
    total = members(cluster) @ moves
    return torch.where(total > SETTLED, moves / total.clamp_min(SETTLED), 0.0).mean(1)


def stragglers(moves: Tensor, cluster: Sequence[int], factor: float) -> Tensor:
    """Who still moves `factor` times as much as all the others of her cluster, which have nearly settled.

    A cluster of one has no others, and a cluster in which nobody else moves at all gives no ground to compare with.
    """
    gamma = rates(moves, cluster)
    others = members(cluster) @ gamma - gamma
    return (others > SETTLED) & (gamma > factor * others)


def importance(related: Tensor, cluster: Sequence[int]) -> Tensor:
    """sigma_q: the mean correlation of a client with the members of its cluster, itself included."""
    same = members(cluster)
    return (same * related).sum(0) / same.sum(0)


def weakest(sigma: Tensor, count: int, active: Tensor) -> Tensor:
    """The `count` clients of least importance over all clusters, by position; ties in the order of the rows.

    Only those still active can be let go, and one of them stays.
    """
    order = torch.argsort(torch.where(active, sigma, torch.inf), stable=True)
    return order[: max(0, min(count, int(active.sum()) - 1))]


@dataclass(frozen=True)
class Dropped:
    """A client that is no longer asked."""

    round: int
    cause: str  # straggler | selection
    cluster: int
    trip: float  # seconds its last round trip took: what each further round saves


@dataclass(frozen=True)
class Saved:
    """What the savers saved so far, as the server can know it."""

    asked: int = 0  # client-rounds that were,
    skipped: int = 0  # and that were not,
    seconds: float = 0.0  # the round trips those would have taken,
    waiting: float = 0.0  # and how much longer the rounds would have lasted

    def shown(self, width: int) -> dict[str, float]:
        """For the run's record; bytes of w and the loss up, z and lambda down, without framing."""
        return {"bytes": self.skipped * 4 * (2 * width + 2), "seconds": self.seconds, "waiting": self.waiting}


def counted(saved: Saved, asked: int, trips: Sequence[float], dropped: Collection[Dropped]) -> Saved:
    """After a round of so many asked, whose answers took these round trips."""
    without = [one.trip for one in dropped]
    longer = max(0.0, max(without, default=0.0) - max(trips, default=0.0))
    return Saved(
        saved.asked + asked, saved.skipped + len(without), saved.seconds + sum(without), saved.waiting + longer
    )
