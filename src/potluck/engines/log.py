"""What an engine records during a run: one record per task, and events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

UNFIT = "does not fit: "  # begins the reason of a task whose device has too little memory to train


class TaskRecord(NamedTuple):  # not a dataclass: one of them is made for every task
    """One task, as the run writes it down."""

    number: int
    client: str
    program: str
    sent: float
    started: float
    trained: float
    arrived: float
    bytes_down: int
    bytes_up: int
    bytes_handoff: int
    macs: float
    memory: int
    joules: float
    outcome: str  # accepted, refused, lost, late, repeat, post
    reason: str = ""
    passes: float = 0.0  # samples that gradient steps visited, by the samples that the client holds
    train_joules: float = 0.0  # of `joules`
    radio_joules: float = 0.0  # of `joules`: what the radio added; the rest is idle power during transfers
    ops: float = 0.0  # operations of the framework; counted where a device's time depends on them
    recorded: float = 0.0  # the same, recorded for gradients
    moved: float = 0.0  # bytes that these read and write
    fresh: float = 0.0  # bytes of their large new results
    waited: float = 0.0  # seconds in which the client had the task, and not yet the rows for it: it rests


@dataclass(frozen=True)
class Event:
    """Something worth a line in the run's log."""

    at: float
    kind: str
    client: str
    detail: str = ""


@dataclass
class Log:
    """What happened since the driver last called `drain`."""

    tasks: list[TaskRecord] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def drain(self) -> tuple[list[TaskRecord], list[Event]]:
        """Return the records and events so far, and start new lists."""
        tasks, events = self.tasks, self.events
        self.tasks, self.events = [], []
        return tasks, events
