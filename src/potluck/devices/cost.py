"""What work and waiting cost on a device: seconds, joules by cause, and whether it fits into memory."""

from __future__ import annotations

from typing import NamedTuple

from potluck.devices.draws import Figure, log_normal
from potluck.devices.profile import Device, Link
from potluck.devices.units import nbytes
from potluck.errors import Code, must_be

RESTS = ("awake", "sleep")  # what a device does while it has no task


class Effort(NamedTuple):
    """What a task takes beside multiply-accumulates."""

    ops: float = 0.0  # operations of the framework
    recorded: float = 0.0  # operations that are recorded for gradients
    moved: float = 0.0  # bytes that all of them read and write
    fresh: float = 0.0  # bytes of their large results, which take new memory from the system


NO_EFFORT = Effort()


def compute_seconds(
    device: Device, macs: Figure, u: Figure, sigma: float | None = None, effort: Effort = NO_EFFORT
) -> Figure:
    """Return the time of training; u in [0, 1) draws a log-normal factor with mean 1 (its sigma: `speed_jitter`).

    MACs and draws may be those of many clients.

    A device that was measured with several networks also takes time for operations and for the bytes that they move.
    """
    seconds = macs / device.macs_per_second
    if device.op_seconds is not None:
        seconds += effort.ops * device.op_seconds
    if device.recorded_op_seconds is not None:
        seconds += effort.recorded * device.recorded_op_seconds
    if device.moves_per_second is not None:
        seconds += effort.moved / device.moves_per_second
    if device.fresh_per_second is not None:
        seconds += effort.fresh / device.fresh_per_second
    return seconds * log_normal(u, device.speed_jitter if sigma is None else sigma)


def needs_effort(device: Device) -> bool:
    """Whether the time of training depends on more than multiply-accumulates, which must be counted then."""
    figures = (device.op_seconds, device.recorded_op_seconds, device.moves_per_second, device.fresh_per_second)
    return any(figure is not None for figure in figures)


class Spent(NamedTuple):
    """Joules by cause. A device that sends or receives is awake, and its radio adds to that."""

    training: float
    radio: float  # what the radio adds
    idle: float  # awake without training
    sleep: float = 0.0

    @property
    def total(self) -> float:
        return self.training + self.radio + self.idle + self.sleep


def spent(
    device: Device,
    link: Link,
    compute_seconds: float,
    up_seconds: float,
    down_seconds: float,
    rest_seconds: float = 0.0,
    rest: str = "awake",
) -> Spent:
    """Return the joules of a task by cause, and of so many seconds of rest around it."""
    resting = rest_watts(device, rest) * rest_seconds if rest_seconds else 0.0
    return Spent(
        training=device.active_watts * compute_seconds,
        radio=link.up_watts * up_seconds + link.down_watts * down_seconds,
        idle=device.idle_watts * (up_seconds + down_seconds) + (resting if rest == "awake" else 0.0),
        sleep=resting if rest == "sleep" else 0.0,
    )


def energy(device: Device, link: Link, compute_seconds: float, up_seconds: float, down_seconds: float) -> float:
    """Return the joules of one task, without the rest around it."""
    return spent(device, link, compute_seconds, up_seconds, down_seconds).total


def rest_watts(device: Device, rest: str) -> float:
    """Return the power of a device without a task; an unknown power of sleep raises BadInput."""
    if rest == "awake":
        return device.idle_watts
    if device.sleep_watts is None:
        fix = 'An unknown figure is not taken as 0. Give it, or set fleet.rest = "awake".'
        raise must_be(Code.DEVICE_FIGURE, f"{device.name}.sleep_watts", "watts above 0", shown="nothing", fix=fix)
    return device.sleep_watts


def too_small(device: Device, needed: int) -> str | None:
    """Return a sentence if the device has too little memory to train, else None."""
    return does_not_hold(device.name, device.memory, needed)


def does_not_hold(device: str, memory: int, needed: int) -> str | None:
    """The same for a device of which only the memory is known."""
    if needed <= memory:
        return None
    return f"{device}: training needs {nbytes(needed)}, the device has {nbytes(memory)} for it."
