"""How often clients push: more epochs for fast ones while stragglers are at work, and a limit of the traffic.

A push costs two models, the reply and the push itself, and a broadcast one for each listener. With a limit, idle
clients wait until the traffic so far allows the next push. The client whose last push moved its cluster most, and that
waited longest since, goes first: bytes go where clusters gain from them. FedAvg's traffic is known when every client
pushed once; until then each pushes once, as in FedAvg's first round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from potluck.fleet import ClientId, Fleet, Params
from potluck.methods.parts import checks
from potluck.methods.parts.renewed import renewed
from potluck.methods.parts.shared_map import SharedMap, share

if TYPE_CHECKING:
    from potluck.methods.echopfl import Config, Grouping


@dataclass(frozen=True)
class Pace:
    """The settings: whether fast clients train longer."""

    fill: float = 0.0  # 1: fast clients train as many epochs per task as fit into the slowest's time; 0: all the same
    most_epochs: int = 20  # at most so many
    bytes_per_second: float | Literal["fedavg"] = (
        0.0  # traffic of all clients; fedavg: as much as its rounds would have
    )

    def __post_init__(self) -> None:
        checks.within(self, "fill", 0.0, 1.0)
        checks.at_least(self, "most_epochs", 1)
        if self.bytes_per_second != "fedavg":
            checks.at_least(self, "bytes_per_second", 0.0)


@dataclass(frozen=True)
class Tempo:
    """Seconds that an epoch took, transfers included, as the server measured it."""

    last: SharedMap[float] = field(default_factory=SharedMap)  # in each client's newest task
    slowest: float = 0.0  # over all tasks so far
    traffic: float = 0.0  # bytes so far, counted where there is a limit
    gains: SharedMap[float] = field(default_factory=SharedMap)  # how far each client's newest push moved its cluster
    pushed: SharedMap[float] = field(default_factory=SharedMap)  # and when it came

    def __post_init__(self) -> None:
        share(self, "last", "gains", "pushed")


def noted(tempo: Tempo, client: ClientId, seconds: float, epochs: int) -> Tempo:
    each = seconds / max(1, epochs)
    return renewed(tempo, last=tempo.last.put(client, each), slowest=max(tempo.slowest, each))


def epochs(tempo: Tempo, client: ClientId, least: int, pace: Pace) -> int:
    """The epochs of a client's next task: `least` (slowest / own)^fill."""
    own = tempo.last.get(client)
    if own is None or own <= 0.0:
        return least
    fits = least * float((tempo.slowest / own) ** pace.fill)
    return max(least, min(pace.most_epochs, round(fits)))


def size(model: Params) -> int:
    """Bytes of a model."""
    return sum(value.numel() * value.element_size() for value in model.values())


def rate(tempo: Tempo, cfg: Config, fleet: Fleet, model: Params) -> float:
    """Bytes per second that all clients together may send and receive; 0: no limit, or not known yet.

    A round of FedAvg sends and receives one model for every client and lasts as long as the slowest client takes. That
    is known when every client pushed once.
    """
    limit = cfg.pace.bytes_per_second
    if limit != "fedavg":
        return float(limit)
    if tempo.slowest <= 0.0 or len(tempo.last) < len(fleet.clients):
        return 0.0
    return 2.0 * size(model) * len(fleet.clients) / (tempo.slowest * cfg.recipe.epochs)


def spent(tempo: Tempo, models: int, model: Params) -> Tempo:
    """With the traffic of so many models."""
    return renewed(tempo, traffic=tempo.traffic + models * size(model)) if models else tempo


def turn(tempo: Tempo, cfg: Config, fleet: Fleet, grouping: Grouping) -> tuple[Sequence[ClientId], float | None]:
    """The idle clients that are sent a model now, and when the limit allows the next (None: not by the limit)."""
    if not cfg.pace.bytes_per_second:
        return fleet.idle, None
    ranked, limit = in_order(fleet, tempo), rate(tempo, cfg, fleet, grouping.first)
    new = [client for client in ranked if client not in grouping.members]  # a first push is always wanted
    known = [client for client in ranked if client in grouping.members]
    if not limit:
        begun = new or any(client not in ranked for client in grouping.newcomers)
        return (new if begun else known), None
    cost = 2.0 * size(grouping.first)
    free = int((limit * fleet.now - tempo.traffic) / cost + 1e-6) - len(new)
    now = known[: max(0, free)]
    until = (tempo.traffic + cost * (len(new) + len(now) + 1)) / limit
    return new + now, until if len(now) < len(known) else None


def gained(tempo: Tempo, client: ClientId, grouping: Grouping, now: float) -> Tempo:
    """With how far a client's push moved its cluster (Delta_t of section 5.2)."""
    member = grouping.members.get(client)
    changes = grouping.clusters[member.cluster].history.changes if member else ()
    gain = changes[-1][0] if changes else 0.0
    return renewed(tempo, gains=tempo.gains.put(client, gain), pushed=tempo.pushed.put(client, now))


def in_order(fleet: Fleet, tempo: Tempo) -> list[ClientId]:
    """The idle clients, the most wanted first: newcomers, then by the time since the last push times its gain.

    The gain counts as a share of the mean, from a half to two: nobody waits more than four times as long as another.
    """
    usual = sum(tempo.gains.values()) / max(1, len(tempo.gains))

    def wanted(client: ClientId) -> float:
        gain = tempo.gains.get(client)
        if gain is None:
            return float("inf")
        weight = min(2.0, max(0.5, gain / usual)) if gain > 0.0 else 1.0  # 0: it opened a cluster
        return weight * (fleet.now - tempo.pushed.get(client, 0.0))

    return sorted(fleet.idle, key=wanted, reverse=True)
