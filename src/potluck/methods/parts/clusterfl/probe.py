"""A probe set: unlabelled inputs on the server, on which models are compared by what they answer.

Three sources. `server`: rows the server has of its own. `clients`: inputs the clients contribute, which is what the
released ClusterFL code amounts to (70 windows of its 7 participants on the server); these are raw samples, so it must
be asked for. `noise`: standard normal inputs, the scale of standardised samples, which cost nobody anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from potluck import keys
from potluck.fleet import ClientId, Data, Done, Fleet, Local


@dataclass(frozen=True)
class Offer:
    """Server to client: give so many of your inputs, without their labels."""

    count: int


@dataclass(frozen=True)
class Offered:
    x: Tensor
    weight: Tensor  # 0 where the client has fewer
    t: Tensor | None
    length: Tensor | None


def offer(task: Offer, local: Local) -> Done:
    """Training inputs drawn at random; the program of `Offer`."""
    data, capacity = local.data, local.data.weight.shape[0]
    rows = keys.permutation(local.key, capacity, data.weight)[: task.count]
    short = task.count - rows.shape[0]
    if short:  # the size on the wire is the same for all
        rows = torch.cat([rows, rows.new_zeros(short)])
    first = torch.arange(task.count) < task.count - short
    weight = data.weight[rows] * first
    t, length = (None if part is None else part[rows] for part in (data.t, data.length))
    return Done(Offered(data.x[rows], weight, t, length))


def source(asked: str, home: Local) -> str:
    """Where the inputs come from: `auto` is the server's rows where it has any, else noise."""
    if asked != "auto":
        return asked
    return "server" if len(home.data.x) else "noise"


def inputs(asked: str, home: Local, given: Data | None, size: int) -> Data | None:
    """The probe set: at most `size` rows of the source asked for, or what the clients gave."""
    match source(asked, home):
        case "clients":
            return given
        case "server":
            return own(home, size)
        case _:
            return noise(home, size)


def own(home: Local, size: int) -> Data:
    """At most `size` of the server's rows, always the same ones."""
    rows = keys.permutation(keys.fold(home.key, "probe"), len(home.data.x))[:size]
    data = home.data
    t, length = (None if part is None else part[rows] for part in (data.t, data.length))
    return Data(data.x[rows], data.y[rows], data.weight[rows], t, length)


def noise(home: Local, size: int) -> Data:
    x = keys.normal(keys.fold(home.key, "probe"), (size, *home.model.shape))
    t = None if home.data.t is None else torch.linspace(0.0, 1.0, x.shape[1]).expand(size, -1)
    length = None if home.data.length is None else torch.full((size,), x.shape[1])
    return Data(x, torch.zeros(size, dtype=torch.int64), torch.ones(size), t, length)


def collected(fleet: Fleet, names: Sequence[ClientId], each: int) -> Data | None:
    """Inputs that the clients contribute, paid for on the wire; None where nobody answered."""
    asked = set(names)
    offers = [a.update for a in fleet.gather({c: Offer(each) for c in list(fleet.idle) if c in asked})]
    if not offers:
        return None
    real = torch.cat([one.weight for one in offers]) > 0

    def joined(parts: list[Tensor | None]) -> Tensor | None:
        given = [part for part in parts if part is not None]
        return torch.cat(given)[real] if given else None

    x = torch.cat([one.x for one in offers])[real]
    t, length = joined([one.t for one in offers]), joined([one.length for one in offers])
    return Data(x, torch.zeros(len(x), dtype=torch.int64), torch.ones(len(x)), t, length)
