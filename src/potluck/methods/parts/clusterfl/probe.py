"""Probe inputs: unlabelled inputs on the server, on which it compares models by what they answer.

There are three sources. `server`: the server rows. `clients`: inputs that the clients contribute, as the released
ClusterFL code in effect does (70 windows of its 7 participants are on the server). These are raw samples, so this
source is never the default. `noise`: standard normal inputs, which have the scale of standardised samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from potluck import keys
from potluck.fleet import ClientId, Data, Done, Fleet, Local
from potluck.methods.parts import checks
from potluck.methods.parts.cohort import ready


@dataclass(frozen=True)
class Probe:
    """The inputs on which `relation.similarity = "kl"` compares models."""

    source: Literal["auto", "server", "clients", "noise"] = "auto"  # auto: the server rows if there are any, else noise
    size: int = 10  # inputs per client
    most: int = 1000  # inputs in all

    def __post_init__(self) -> None:
        checks.at_least(self, "size", 1)
        checks.at_least(self, "most", 1)


@dataclass(frozen=True)
class Offer:
    """Server to client: send so many of your inputs, without their labels."""

    count: int


@dataclass(frozen=True)
class Offered:
    """Client to server."""

    x: Tensor
    weight: Tensor  # 0 where the client has fewer
    t: Tensor | None
    length: Tensor | None


def offer(task: Offer, local: Local) -> Done:
    """Send training inputs drawn at random."""
    data, capacity = local.data, local.data.weight.shape[0]
    rows = keys.permutation(local.key, capacity, data.weight)[: task.count]
    short = task.count - rows.shape[0]
    if short:  # the size on the wire is the same for all clients
        rows = torch.cat([rows, rows.new_zeros(short)])
    first = torch.arange(task.count) < task.count - short
    weight = data.weight[rows] * first
    t, length = (None if part is None else part[rows] for part in (data.t, data.length))
    return Done(Offered(data.x[rows], weight, t, length))


def source(probe: Probe, home: Local) -> str:
    """Where the inputs come from: `auto` is the server rows if there are any, else noise."""
    if probe.source != "auto":
        return probe.source
    return "server" if len(home.data.x) else "noise"


def contributed(fleet: Fleet, probe: Probe, names: Sequence[ClientId], before: Data | None) -> Data | None:
    """What the clients contributed. With the source `clients`, ask the named clients once."""
    if before is not None or source(probe, fleet.home) != "clients":
        return before
    return collected(fleet, names, max(1, min(probe.size, probe.most // len(names))))


def inputs(probe: Probe, home: Local, given: Data | None, clients: int) -> Data | None:
    """The probe inputs for so many clients; `given` is what the clients contributed."""
    size = min(probe.most, probe.size * clients)
    match source(probe, home):
        case "clients":
            return given
        case "server":
            return own(home, size)
        case _:
            return noise(home, size)


def own(home: Local, size: int) -> Data:
    """At most `size` of the server rows, always the same ones."""
    rows = keys.permutation(keys.fold(home.key, "probe"), len(home.data.x))[:size]
    data = home.data
    t, length = (None if part is None else part[rows] for part in (data.t, data.length))
    return Data(data.x[rows], data.y[rows], data.weight[rows], t, length)


def noise(home: Local, size: int) -> Data:
    """Standard normal inputs, always the same ones."""
    x = keys.normal(keys.fold(home.key, "probe"), (size, *home.model.shape))
    t = None if home.data.t is None else torch.linspace(0.0, 1.0, x.shape[1]).expand(size, -1)
    length = None if home.data.length is None else torch.full((size,), x.shape[1])
    return Data(x, torch.zeros(size, dtype=torch.int64), torch.ones(size), t, length)


def collected(fleet: Fleet, names: Sequence[ClientId], each: int) -> Data | None:
    """Inputs that the named clients contribute, by ordinary tasks; None if no client answered."""
    asked = set(names)
    offers = [a.update for a in fleet.gather({c: Offer(each) for c in ready(fleet, fits=asked.__contains__)})]
    if not offers:
        return None
    real = torch.cat([one.weight for one in offers]) > 0

    def joined(parts: list[Tensor | None]) -> Tensor | None:
        given = [part for part in parts if part is not None]
        return torch.cat(given)[real] if given else None

    x = torch.cat([one.x for one in offers])[real]
    t, length = joined([one.t for one in offers]), joined([one.length for one in offers])
    return Data(x, torch.zeros(len(x), dtype=torch.int64), torch.ones(len(x)), t, length)
