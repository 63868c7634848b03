"""Give every client a partner: the access point through which a constrained device reaches the server.

There are then two kinds of clients: first the devices, then their access points in the same order. An access point has
no data and is not evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from potluck.devices import Device, Link
from potluck.engines.local import Roster
from potluck.errors import Code, unknown
from potluck.fleet import ClientId, Data
from potluck.wire.codec import walk

DEVICE, AP = "device", "access-point"
SUFFIX = "-ap"
Materialise = Callable[[Sequence[int], int], Data]


def with_access_points(
    roster: Roster,
    name: str,
    devices: Mapping[str, Device],
    links: Mapping[str, Link],
) -> Roster:
    """Return the roster with an access point `name` (or "device@link") for every client."""
    device, _, link = name.partition("@")
    if device not in devices:
        raise unknown(Code.DEVICE_UNKNOWN, "fleet.access_point", device, devices)
    link = link or devices[device].link
    if link not in links:
        raise unknown(Code.DEVICE_UNKNOWN, "fleet.access_point: link", link, links)
    count = len(roster)
    names: list[ClientId] = [*roster.names, *(f"{client}{SUFFIX}" for client in roster.names)]
    return Roster(
        names,
        np.concatenate([np.asarray(roster.samples), np.zeros(count, dtype=np.int64)]),
        [*roster.equipment, (devices[device], links[link])],
        np.concatenate([roster.codes, np.full(count, len(roster.equipment))]),
        kinds=[DEVICE] * count + [AP] * count,
        partners=[*range(count, 2 * count), *range(count)],
        joins=_twice(roster.joins),
        leaves=_twice(roster.leaves),
    )


def without_data(materialise: Materialise, count: int, like: Data) -> Materialise:
    """Give no rows to the clients from `count` on; `like` has the shapes of a sample."""

    def materialised(places: Sequence[int], capacity: int) -> Data:
        if places[0] < count:
            return materialise(places, capacity)
        empty: Data = walk(like, lambda t: t.new_zeros(len(places), capacity, *t.shape[1:]))
        return empty

    return materialised


def _twice(moments: NDArray[Any] | None) -> NDArray[Any] | None:
    return None if moments is None else np.concatenate([moments, moments])
