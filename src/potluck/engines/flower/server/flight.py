"""A task on its way to a client machine, and the record of it once it is over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from potluck import devices
from potluck.engines.log import TaskRecord
from potluck.fleet import ClientId
from potluck.wire.gate import Expected


@dataclass
class Flight:
    """A task that was sent and is not over."""

    number: int
    client: ClientId
    ticket: str  # which start of the server sent it, and its number: never the same twice
    count: int  # how many tasks this client had before
    task: Any
    legs: int
    sent: float
    expected: Expected
    macs: float
    memory: int
    passes: float = 0.0  # over the client's samples, as the task was priced
    like: Any = None  # private state of the right shapes, as the client has it after this task
    leg: int = 0
    mail: Any = None  # the note that goes with this leg
    bytes_down: int = 0
    abandoned: bool = False
    out: bool = False  # this leg was sent
    asked: float = 0.0  # the run's time when it was sent
    called_off: str = ""  # why it never begins, if it does not
    back: bool = False  # its answer is here and waits until the method asks for it


@dataclass(frozen=True)
class Usage:
    """The figures that a client sends with its answer, or zeros."""

    nbytes: int = 0
    worked: float = 0.0  # seconds, by the client's own clock
    handed: int = 0  # bytes that it gave its partner


def record(flight: Flight, at: float, outcome: str, reason: str, usage: Usage, device: str = "") -> TaskRecord:
    """One task for the run's database; joules only where the device's power is known."""
    known = devices.catalogue().get(device)
    joules = 0.0 if known is None else known.active_watts * usage.worked
    return TaskRecord(
        number=flight.number,
        client=flight.client,
        program=type(flight.task).__name__,
        sent=flight.sent,
        started=max(flight.sent, at - usage.worked),
        trained=at,
        arrived=at,
        bytes_down=flight.bytes_down,
        bytes_up=usage.nbytes,
        bytes_handoff=usage.handed,
        macs=flight.macs if outcome in ("accepted", "refused", "late") else 0.0,
        memory=flight.memory,
        joules=joules,
        outcome=outcome,
        reason=reason,
        passes=flight.passes if outcome in ("accepted", "refused", "late") else 0.0,
        train_joules=joules,
    )
