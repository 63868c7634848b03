"""A task in flight: when each part of it happens, and what has been computed of it so far."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from potluck import keys
from potluck.devices import Device, Link, compute_seconds, energy
from potluck.engines.local.faults import Faults
from potluck.engines.log import TaskRecord
from potluck.engines.price import Price
from potluck.fleet import ClientId, Done
from potluck.wire.gate import Expected, Seen

# (client index, moment) -> whose samples it has then, and the new number of each label (None: unchanged)
View = Callable[[int, float], tuple[int, tuple[int, ...] | None]]


def unchanged(client: int, at: float) -> tuple[int, tuple[int, ...] | None]:
    """The view of a client whose data never drifts."""
    return client, None


@dataclass
class Flight:
    """Times are known when the task is sent; results are computed later, when somebody needs them."""

    number: int
    client: int
    count: int  # how many tasks this client had before
    program: str
    task: Any
    legs: int
    sent: float
    starts: list[float]  # of every leg
    trained: float
    arrives: float
    fault: str | None
    lost: str | None  # why it will not arrive, if it will not
    bytes_down: int
    bytes_up: int
    bytes_handoff: int
    macs: float
    memory: int
    joules: float
    expected: Expected
    parcel: Any = None  # what the partner had handed over when the task was sent
    abandoned: bool = False
    leg: int = 0  # the next one to run
    carry: Any = None
    done: Done | None = None
    seen: Seen | None = None

    @property
    def complete(self) -> bool:
        return self.leg >= self.legs

    def called_off(self, reason: str) -> None:
        """It never begins, and costs nothing."""
        self.lost, self.arrives, self.trained = reason, self.sent, self.sent
        self.starts = [self.sent] * self.legs
        self.macs, self.joules, self.bytes_down, self.bytes_up, self.bytes_handoff = 0.0, 0.0, 0, 0, 0


def plan(
    *,
    seed: int,
    name: str,
    number: int,
    client: int,
    count: int,
    task: Any,
    legs: int,
    now: float,
    samples: int,
    device: Device,
    link: Link,
    price: Price,
    bytes_down: int,
    faults: Faults,
    leaves: float = math.inf,
    slow: Callable[[float], bool] | None = None,
    parcel: Any = None,
    relay: Link | None = None,
) -> Flight:
    """Everything about a task that is known before anyone computes it: durations, costs, and what will go wrong."""

    u_fault, u_speed, u_down, u_up, u_drop, u_moment = keys.shares(keys.number(seed, name, count, "task"), 6)
    phase = 0.0 if link.trace is None else link.phase(keys.number(seed, name))
    fault = faults.draw(u_fault)
    stretch = faults.late_factor if fault == "late" else 1.0
    macs = price.macs.of(samples) * legs
    bytes_up, bytes_handoff = round(price.up.of(samples)), round(price.handoff.of(samples))
    down = link.transfer(bytes_down, up=False, at=now + phase, u=u_down)
    # Through an access point: its link to the server comes first, and again at the end; what it is handed stays there.
    before = 0.0 if relay is None else relay.transfer(bytes_down, up=False, at=now, u=u_down)
    after = 0.0 if relay is None else relay.transfer(bytes_up, up=True, at=now, u=u_up)
    train = compute_seconds(device, macs, u=u_speed) * stretch
    begin = now + before + down
    starts = [begin + train * leg / legs for leg in range(legs)]
    trained = begin + train
    up = link.transfer(bytes_up + bytes_handoff, up=True, at=trained + phase, u=u_up) * stretch
    arrives = trained + up + after
    lost, gone = None, arrives
    if fault == "dropout" or u_drop < link.dropout:
        lost, gone = "went away while it worked", now + u_moment * (arrives - now)
    if slow is not None and slow(trained) and trained < gone:
        lost, gone = "cut off: its link is below the floor", trained
    if leaves < gone:
        lost, gone = "left while it worked", max(now, leaves)
    if lost is not None:  # it pays for what it did until then
        share = 0.0 if train == 0 else min(1.0, max(0.0, gone - begin) / train)
        macs, train = macs * share, train * share
        down, up = min(down, gone - now), max(0.0, gone - trained)
        bytes_up = bytes_handoff = 0
        arrives, trained, starts = gone, min(trained, gone), [min(begin, gone) for begin in starts]
    return Flight(
        number=number,
        client=client,
        count=count,
        program=type(task).__name__,
        task=task,
        legs=legs,
        sent=now,
        starts=starts,
        trained=trained,
        arrives=arrives,
        fault=fault,
        lost=lost,
        bytes_down=bytes_down,
        bytes_up=bytes_up,
        bytes_handoff=bytes_handoff,
        macs=macs,
        memory=price.memory,
        joules=energy(device, link, train, up, down),
        expected=price.expected,
        parcel=parcel,
    )


def recorded(flight: Flight, client: ClientId, outcome: str, reason: str = "") -> TaskRecord:
    """The line of a flight that ended; a repeated answer costs its bytes up again and nothing else."""
    again = outcome == "repeat"
    return TaskRecord(
        number=flight.number,
        client=client,
        program=flight.program,
        sent=flight.sent,
        started=flight.starts[0],
        trained=flight.trained,
        arrived=flight.arrives,
        bytes_down=0 if again else flight.bytes_down,
        bytes_up=flight.bytes_up,
        bytes_handoff=0 if again else flight.bytes_handoff,
        macs=0.0 if again else flight.macs,
        memory=flight.memory,
        joules=0.0 if again else flight.joules,
        outcome=outcome,
        reason=reason,
    )


def relayed(flight: Flight, access_point: ClientId, relay: Link, at: float) -> TaskRecord:
    """What an access point passed on between its device and the server."""
    down, up = flight.bytes_down, flight.bytes_up
    joules = relay.down_watts * relay.transfer(down, up=False, at=at, u=0.5)
    joules += relay.up_watts * relay.transfer(up, up=True, at=at, u=0.5)
    return TaskRecord(-1, access_point, "relay", at, at, at, at, down, up, 0, 0.0, 0, joules, "post")
