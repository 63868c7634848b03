"""The two communication savers: clients that the server stops asking.

Ouyang et al., "ClusterFL", ACM TOSN 18(4), 2022, sections 6.1 (stragglers inside a cluster) and 6.2 (clients that are
weakly related to their cluster). Both are sums within clusters, written with a 0/1 membership matrix.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from potluck import keys
from potluck.fleet import Arrival, ClientId, ClientProgram, Done, Fleet, Local, Message
from potluck.methods.parts import checks
from potluck.methods.parts.clusterfl.relation import correlation
from potluck.methods.parts.clusterfl.table import trip
from potluck.methods.parts.clusterfl.validation import training_loss
from potluck.methods.parts.cohort import awaited
from potluck.tensors import each

if TYPE_CHECKING:
    from potluck.methods.clusterfl import State

SETTLED = 1e-6  # a sum of loss changes below this counts as none


@dataclass(frozen=True)
class Savers:
    """Which clients the server drops, and how they finish alone."""

    stragglers: bool = False  # saver 1: drop a client whose loss still moves while its cluster has settled
    stragglers_of: Literal["cluster", "all"] = "cluster"  # compared with its cluster, or with all clients as a baseline
    straggler_share: float = 2.0  # it makes more than so many times an even share of the others' loss change
    straggler_factor: float = 0.0  # the released rule instead: so many times that of all others together; 0: not used
    window: int = 10  # T_c, the reports by which a straggler is judged
    select: float = 0.0  # saver 2: M_d, how many weakly related clients to drop; below 1, a share of all clients
    select_by: Literal["weakest", "strongest", "random"] = "weakest"  # whom it drops; the others are controls
    select_at: int = 15  # T_thresh, the round of that selection
    finish: int = 20  # rounds' worth of training that a dropped client may still do alone
    finish_tolerance: float = 1e-3  # it stops when a round's worth changes its loss by less than this

    def __post_init__(self) -> None:
        for name in ("window", "select_at"):
            checks.at_least(self, name, 1)
        for name in ("straggler_share", "straggler_factor", "select", "finish", "finish_tolerance"):
            checks.at_least(self, name, 0)


@dataclass(frozen=True)
class Dropped:
    """A client that the server no longer asks."""

    round: int
    cause: str  # straggler | selection
    cluster: int
    trip: float  # seconds that its last round trip took: what each further round saves


@dataclass(frozen=True)
class Finish:
    """Server to a dropped client: train on alone, with the last z, until the loss has settled."""

    task: Message  # the method's training task
    pieces: int
    tolerance: float


@dataclass(frozen=True)
class Finished:
    """Client to server."""

    loss: Tensor


def finish(order: Finish, local: Local, train: ClientProgram) -> Done:
    """Repeat the training task alone until the loss has settled (section 6.1). Later pieces change nothing."""
    mine, loss, moving = local.mine, training_loss(local, local.mine.weights), torch.ones(())
    for piece in range(order.pieces):
        done = train(order.task, replace(local, mine=mine, key=keys.fold(local.key, piece)))
        weights = each(lambda new, old, go=moving: torch.where(go > 0, new, old), done.mine.weights, mine.weights)
        mine = replace(done.mine, weights=weights)
        now = torch.where(moving > 0, done.update.loss, loss)
        moving, loss = moving * ((now - loss).abs() >= order.tolerance), now
    return Done(Finished(loss), mine=mine)


def members(cluster: Sequence[int]) -> Tensor:
    """same_MM: 1 where two clients share a cluster."""
    label = torch.tensor(cluster, dtype=torch.int64)
    return (label[:, None] == label).float()


def rates(moves: Tensor, cluster: Sequence[int]) -> Tensor:
    """gamma_q: the client's share of its cluster's loss change |loss(t) - loss(t-1)|, mean over the window."""
    total = members(cluster) @ moves
    return torch.where(total > SETTLED, moves / total.clamp_min(SETTLED), 0.0).mean(1)


def stragglers(moves: Tensor, cluster: Sequence[int], factor: float) -> Tensor:
    """The released rule of section 6.1: clients that move `factor` times as much as all others of their cluster.

    The rates of a cluster sum to 1. So with the released factor, 10, one client must make 91 % of the change: this
    hardly ever happens. A cluster of one has no others. A cluster in which no other client moves says nothing.
    """
    gamma = rates(moves, cluster)
    others = members(cluster) @ gamma - gamma
    return (others > SETTLED) & (gamma > factor * others)


def uneven(moves: Tensor, cluster: Sequence[int], share: float, active: Tensor) -> Tensor:
    """Clients that make more than `share` times an even part, share / C_j, of the loss change of their cluster.

    C_j counts the clients that are still asked. Of one or two nobody is a straggler.
    """
    size = members(cluster) @ active.float()
    return (size > 2) & (rates(moves, cluster) > share / size.clamp_min(1.0))


def importance(related: Tensor, cluster: Sequence[int]) -> Tensor:
    """Section 6.2, sigma_q: the mean correlation of a client with the members of its cluster, itself included."""
    same = members(cluster)
    return (same * related).sum(0) / same.sum(0)


def weakest(sigma: Tensor, count: int, active: Tensor, by: str = "weakest", key: Tensor | None = None) -> Tensor:
    """The `count` clients of least importance over all clusters, by position; ties in the order of the rows.

    Only active clients can be dropped, and one of them stays. `by` makes it the strongest ones, or random ones.
    """
    if by == "random":
        sigma = keys.uniform(keys.key("select") if key is None else key, (len(sigma),))
    elif by == "strongest":
        sigma = -sigma
    order = torch.argsort(torch.where(active, sigma, torch.inf), stable=True)
    return order[: max(0, min(count, int(active.sum()) - 1))]


def causes(savers: Savers, state: State, clients: int, key: Tensor | None = None) -> dict[int, str]:
    """The rows of the table whose clients are to be dropped now, and why. `clients` is the size of the fleet."""
    found: dict[int, str] = {}
    table, structure = state.table, state.structure
    if structure.learned < 0:
        return found
    active = torch.tensor([name not in state.dropped for name in table.names])
    if savers.stragglers:
        judged = active & (table.reports > savers.window)
        moves = torch.where(active[:, None], table.moves, 0.0)
        cluster = structure.cluster if savers.stragglers_of == "cluster" else (0,) * len(table.names)
        if savers.straggler_factor:
            slow = stragglers(moves, cluster, savers.straggler_factor)
        else:
            slow = uneven(moves, cluster, savers.straggler_share, active)
        found |= {int(i): "straggler" for i in (slow & judged).nonzero()[:, 0]}
    selected = any(one.cause == "selection" for one in state.dropped.values())
    if savers.select and state.round >= savers.select_at and not selected:
        count = round(savers.select * clients) if savers.select < 1 else int(savers.select)
        sigma = importance(correlation(structure.F), structure.cluster)
        found |= {int(i): "selection" for i in weakest(sigma, count, active, savers.select_by, key)}
    return found


def dropped(
    fleet: Fleet, savers: Savers, state: State, causes: Mapping[int, str], tasks: Mapping[int, Message]
) -> dict[ClientId, Dropped]:
    """Send each client in `causes` its last training task, to finish alone; a client that is away gets none."""
    table = state.table
    awaited(fleet, [table.names[i] for i in tasks])
    idle = set(fleet.idle)
    for i, task in tasks.items():
        if table.names[i] in idle:
            fleet.send(Finish(task, savers.finish, savers.finish_tolerance), to=table.names[i])
    return {
        table.names[i]: Dropped(state.round, cause, state.structure.cluster[i], float(table.trips[i]))
        for i, cause in causes.items()
    }


def settled(state: State, tolerance: float) -> bool:
    """Section 6: F is known and the mean loss change of the clients still asked is below the tolerance."""
    rows = [i for i, name in enumerate(state.table.names) if name not in state.dropped]
    known = state.structure.learned >= 0 and bool(rows)
    return known and float(state.table.moves[rows, -1].mean()) < tolerance


@dataclass(frozen=True)
class Saved:
    """What the savers have saved so far, as far as the server can know."""

    asked: int = 0  # client-rounds that took place
    skipped: int = 0  # client-rounds that did not
    seconds: float = 0.0  # the round trips that those would have taken
    waiting: float = 0.0  # how much longer the rounds would have lasted

    def shown(self, width: int) -> dict[str, float]:
        """For the run's record; bytes of w and the loss up, z and lambda down, without framing."""
        return {"bytes": self.skipped * 4 * (2 * width + 2), "seconds": self.seconds, "waiting": self.waiting}


def counted(saved: Saved, asked: int, arrivals: Sequence[Arrival], dropped: Collection[Dropped]) -> Saved:
    """After a round with so many clients asked and these answers."""
    without = [one.trip for one in dropped]
    longer = max(0.0, max(without, default=0.0) - max((trip(one) for one in arrivals), default=0.0))
    return Saved(
        saved.asked + asked, saved.skipped + len(without), saved.seconds + sum(without), saved.waiting + longer
    )
