"""A task in flight: when each part of it happens, and what has been computed of it so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from potluck import keys
from potluck.devices import Device, Effort, Link, compute_seconds, spent
from potluck.engines.local.faults import Faults
from potluck.engines.log import TaskRecord
from potluck.engines.price import Price
from potluck.fleet import ClientId, Done
from potluck.wire.apart import Apart
from potluck.wire.gate import Expected, Seen

DRAWS = 6  # random numbers of a task: fault, speed, way down, way up, drop-out, and when that happens
# (client index, moment) -> whose samples it has then, and the new number of each label (None: unchanged)
View = Callable[[int, float], tuple[int, tuple[int, ...] | None]]


def unchanged(client: int, at: float) -> tuple[int, tuple[int, ...] | None]:
    """The view of a client whose data never drifts."""
    return client, None


@dataclass
class Flight:
    """Times are known when the task is sent; results are computed later, when they are needed."""

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
    visits: float = 0.0  # samples in gradient steps, over all epochs
    passes: float = 0.0  # the same by the samples that the client holds
    train_joules: float = 0.0  # of `joules`
    radio_joules: float = 0.0  # of `joules`
    ops: float = 0.0
    recorded: float = 0.0
    moved: float = 0.0  # bytes
    fresh: float = 0.0  # bytes
    waited: float = 0.0  # seconds for rows that had not come yet
    abandoned: bool = False
    leg: int = 0  # the next one to run
    carry: Any = None
    done: Done | None = None
    seen: Seen | None = None
    apart: Apart | None = None  # the task taken apart; not saved

    @property
    def complete(self) -> bool:
        return self.leg >= self.legs

    @property
    def saved(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {name: value for name, value in vars(self).items() if name != "apart"}

    def call_off(self, reason: str) -> None:
        """The task never begins, and costs nothing."""
        self.lost, self.arrives, self.trained = reason, self.sent, self.sent
        self.starts = [self.sent] * self.legs
        self.macs, self.joules, self.bytes_down, self.bytes_up, self.bytes_handoff = 0.0, 0.0, 0, 0, 0
        self.visits = self.passes = self.train_joules = self.radio_joules = self.waited = 0.0
        self.ops = self.recorded = self.moved = self.fresh = 0.0


class Order(NamedTuple):
    """A task that is being sent: to which client, and what goes with it."""

    number: int
    client: int
    name: ClientId
    earlier: int  # how many tasks this client had before
    apart: Apart  # the task
    legs: int
    sent: float
    samples: int  # that it trains on
    parcel: Any = None
    rows: int = 0  # that it holds; an access point works on those of its device
    not_before: float = 0.0  # when it may begin to train


class Situation(NamedTuple):
    """A client's device and links, and when it goes away."""

    device: Device
    link: Link
    relay: Link | None = None  # the access point's link to the server, where the client is behind one
    leaves: float = math.inf  # the moment at which it leaves for good
    too_slow: Callable[[float], bool] | None = None  # moment -> whether its link is below the floor then


def goes_away(link: Link, client: ClientId, count: int, seed: int, faults: Faults) -> bool:
    """Whether a client goes away during a task, by the same draws as `plan` takes."""
    u_fault, _, _, _, u_drop, _ = keys.shares(keys.number(seed, client, count, "task"), DRAWS)
    return faults.draw(u_fault) == "dropout" or u_drop < link.dropout


class Course(NamedTuple):
    """The way of a task that nothing disturbs, in moments and seconds: numbers, or arrays for many clients alike."""

    down: Any  # seconds of its transfer
    there: Any  # when the client has it
    begin: Any  # when training begins
    train: Any  # seconds of training
    trained: Any
    up: Any  # seconds of the answer's transfer
    arrives: Any


def course(
    where: Situation, now: float, weights: Sequence[int], macs: Any, effort: Effort, draws: Sequence[Any],
    phase: float = 0.0, stretch: float = 1.0, not_before: float = 0.0,
) -> Course:  # fmt: skip
    """When a task gets where. `weights` are the bytes down, up and handed off, `draws` those of speed, down and up."""
    (bytes_down, bytes_up, bytes_handoff), (u_speed, u_down, u_up) = weights, draws
    down = where.link.transfer(bytes_down, up=False, at=now + phase, u=u_down)
    # Behind an access point: its link to the server comes first, and again at the end. A hand-off stays there.
    before = 0.0 if where.relay is None else where.relay.transfer(bytes_down, up=False, at=now, u=u_down)
    after = 0.0 if where.relay is None else where.relay.transfer(bytes_up, up=True, at=now, u=u_up)
    train = compute_seconds(where.device, macs, u=u_speed, effort=effort) * stretch
    there = now + before + down
    begin = max(there, not_before) if not_before else there
    trained = begin + train
    up = where.link.transfer(bytes_up + bytes_handoff, up=True, at=trained + phase, u=u_up) * stretch
    return Course(down, there, begin, train, trained, up, trained + up + after)


def plan(
    order: Order, situation: Situation, price: Price, seed: int, faults: Faults, drawn: Sequence[float] | None = None
) -> Flight:
    """Everything about a task that is known before it is computed: durations, costs, and what will go wrong.

    `drawn` are the task's draws, where they are known already.
    """
    device, link, now = situation.device, situation.link, order.sent
    task, bytes_down = order.apart.value, order.apart.nbytes
    if drawn is None:
        drawn = keys.shares(keys.number(seed, order.name, order.earlier, "task"), DRAWS)
    u_fault, *draws, u_drop, u_moment = drawn
    phase = 0.0 if link.trace is None else link.phase(keys.number(seed, order.name))
    fault = faults.draw(u_fault)
    stretch = faults.late_factor if fault == "late" else 1.0
    amounts = price.at(order.samples)
    macs, visits = amounts.macs * order.legs, amounts.visits * order.legs
    bytes_up, bytes_handoff = amounts.up, amounts.handoff
    effort = Effort(*(order.legs * one for one in (amounts.ops, amounts.recorded, amounts.moved, amounts.fresh)))
    weights = (bytes_down, bytes_up, bytes_handoff)
    down, there, begin, train, trained, up, arrives = course(
        situation, now, weights, macs, effort, draws, phase, stretch, order.not_before
    )
    starts = [begin + train * leg / order.legs for leg in range(order.legs)]
    lost, gone = None, arrives
    if fault == "dropout" or u_drop < link.dropout:  # as `goes_away` says it
        lost, gone = "went away while it worked", now + u_moment * (arrives - now)
    if situation.too_slow is not None and situation.too_slow(trained) and trained < gone:
        lost, gone = "cut off: its link is below the floor", trained
    if situation.leaves < gone:
        lost, gone = "left while it worked", max(now, situation.leaves)
    if lost is not None:  # it pays for what it did until then
        share = 0.0 if train == 0 else min(1.0, max(0.0, gone - begin) / train)
        macs, train, visits = macs * share, train * share, visits * share
        effort = Effort(*(one * share for one in effort))
        down, up = min(down, gone - now), max(0.0, gone - trained)
        bytes_up = bytes_handoff = 0
        arrives, trained, starts = gone, min(trained, gone), [min(begin, gone) for begin in starts]
        begin = min(begin, max(there, gone))
    used = spent(device, link, train, up, down)
    return Flight(
        number=order.number,
        client=order.client,
        count=order.earlier,
        program=type(task).__name__,
        task=task,
        apart=order.apart,
        legs=order.legs,
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
        joules=used.total,
        expected=price.expected,
        parcel=order.parcel,
        visits=visits,
        passes=visits / order.rows if order.rows else 0.0,
        train_joules=used.training,
        radio_joules=used.radio,
        ops=effort.ops,
        recorded=effort.recorded,
        moved=effort.moved,
        fresh=effort.fresh,
        waited=begin - there,
    )


def recorded(flight: Flight, client: ClientId, outcome: str, reason: str = "") -> TaskRecord:
    """The record of a flight that ended; a repeated answer costs its bytes up again and nothing else."""
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
        passes=0.0 if again else flight.passes,
        train_joules=0.0 if again else flight.train_joules,
        radio_joules=0.0 if again else flight.radio_joules,
        ops=0.0 if again else flight.ops,
        recorded=0.0 if again else flight.recorded,
        moved=0.0 if again else flight.moved,
        fresh=0.0 if again else flight.fresh,
        waited=flight.waited,
    )


def relayed(flight: Flight, access_point: ClientId, relay: Link, at: float) -> TaskRecord:
    """What an access point passed on between its device and the server."""
    down, up = flight.bytes_down, flight.bytes_up
    joules = relay.down_watts * relay.transfer(down, up=False, at=at, u=0.5)
    joules += relay.up_watts * relay.transfer(up, up=True, at=at, u=0.5)
    times = (at, at, at, at)
    return TaskRecord(-1, access_point, "relay", *times, down, up, 0, 0.0, 0, joules, "post", radio_joules=joules)
