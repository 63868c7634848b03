"""Devices and links: the figures from which virtual time and energy follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from potluck.devices.availability import Availability
from potluck.devices.draws import Figure, log_normal
from potluck.devices.trace import Trace

KINDS = ("microcontroller", "wearable", "phone", "board", "pc", "access-point")


@dataclass(frozen=True)
class Device:
    name: str
    title: str
    kind: str
    link: str  # the link it uses unless the fleet says otherwise
    macs_per_second: float  # multiply-accumulates, while training
    memory: int  # bytes usable for training
    storage: int  # bytes for samples and models at rest
    active_watts: float  # while training
    idle_watts: float  # awake, waiting
    sources: Mapping[str, str]  # where each figure comes from
    sleep_watts: float | None = None  # suspended, until a task wakes it; None: not known
    op_seconds: float | None = None  # to start an operation of the framework; None: only the MACs take time
    recorded_op_seconds: float | None = None  # the same for an operation that is recorded for gradients
    moves_per_second: float | None = None  # bytes that operations read and write; None: they take no time
    fresh_per_second: float | None = None  # bytes of large new results, whose pages the system must give
    speed_jitter: float = 0.1  # sigma of the log-normal factor on the time of training
    battery: float | None = None  # joules of a full one; 0: it runs from the mains; None: not known


@dataclass(frozen=True)
class Link:
    name: str
    title: str
    up: float  # bit/s from the client
    down: float  # bit/s to the client
    latency: float  # seconds, one way
    jitter: float  # sigma of the log-normal factor on a transfer's time
    up_watts: float  # what the radio adds while sending
    down_watts: float  # what the radio adds while receiving
    dropout: float  # probability that a task is lost
    sources: Mapping[str, str]
    trace: Trace | None = None  # a factor on both rates over time
    availability: Availability | None = None
    along: bool = False  # notes take no way of their own: they go with the client's next message, as in a deployment

    def transfer(self, nbytes: int, up: bool, at: float, u: Figure) -> Figure:
        """Return the seconds from sending the first bit, at the moment `at`, to the arrival of the last one.

        u in [0, 1) draws the jitter, which makes sending and latency longer or shorter by one factor. Sending
        follows the trace from `at` on; the latency is the last bit's. Without a trace, u may be many clients' draws.
        """
        if nbytes < 0:
            raise ValueError(f"nbytes = {nbytes}: a transfer cannot be negative")
        factor = log_normal(u, self.jitter)
        sending = 8.0 * nbytes * factor / (self.up if up else self.down)
        if self.trace is not None:
            assert not isinstance(sending, np.ndarray)
            sending = self.trace.stretch(sending, at)
        return self.latency * factor + sending

    def phase(self, number: int) -> float:
        """Return the seconds to add to `at` for this client, so that clients on one trace do not vary together."""
        return 0.0 if self.trace is None else self.trace.phase(number)
