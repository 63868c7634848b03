"""A day of a federation: how many rounds fit into it, and what they take from each kind of device.

Rounds follow each other until the day is over, the run is done, or a wish allows no more: bytes per device and day, or
a share of the battery. The client that moves or uses most of its kind counts. Outside of its rounds a device sleeps or
does other things; the plan does not charge that time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from potluck.planner.costs import DeviceCost, Figures, Joules
from potluck.planner.wish import Wish

DAY = 86400.0


@dataclass(frozen=True)
class DeviceDay:
    """What a day takes from a client with this device: means over the clients, and the share of its battery."""

    device: str
    link: str
    clients: int
    bytes: float
    most_bytes: float
    joules: Joules
    most_joules: float
    battery: (
        float | None
    )  # share of the battery in a day, of the client that uses most; None: on the mains, or not known
    battery_days: float | None  # until the battery is empty


@dataclass(frozen=True)
class Day:
    """A day of training."""

    rounds: float
    days: float  # until the run is done
    limit: str  # what allows no more rounds a day: "time", "the run", or a wish in words
    devices: tuple[DeviceDay, ...]


def day_of(figures: Figures, wish: Wish) -> Day:
    """Fit as many rounds into a day as time and wishes allow."""
    rounds = max(1, figures.rounds)
    limits = {"the run": float(rounds), "time": DAY / max(1e-9, figures.seconds / rounds)}
    for one in figures.devices:
        if wish.bytes_a_day is not None and one.most_bytes > 0:
            _least(limits, "bytes", wish.bytes_a_day / (one.most_bytes / rounds))
        if wish.battery_a_day is not None and one.battery and one.most_joules > 0:
            _least(limits, "battery", wish.battery_a_day * one.battery / (one.most_joules / rounds))
    limit = min(limits, key=lambda name: limits[name])
    a_day = limits[limit] if limits[limit] < 1 else float(math.floor(limits[limit] + 1e-9))
    share = a_day / rounds
    return Day(a_day, rounds / a_day, limit, tuple(_device(one, share) for one in figures.devices))


def _least(limits: dict[str, float], name: str, value: float) -> None:
    limits[name] = min(value, limits.get(name, value))


def _device(one: DeviceCost, share: float) -> DeviceDay:
    most = one.most_joules * share
    used = most / one.battery if one.battery else None
    return DeviceDay(
        device=one.device,
        link=one.link,
        clients=one.clients,
        bytes=(one.bytes_up + one.bytes_down) * share,
        most_bytes=one.most_bytes * share,
        joules=Joules.mean([(one.joules, share)]),
        most_joules=most,
        battery=used,
        battery_days=None if used is None else (1 / used if used else math.inf),
    )
