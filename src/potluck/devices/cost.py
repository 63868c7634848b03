"""What work costs on a device: seconds, joules, and whether it fits into memory."""

from __future__ import annotations

from potluck.devices.draws import log_normal
from potluck.devices.profile import Device, Link
from potluck.devices.units import nbytes


def compute_seconds(device: Device, macs: float, u: float, sigma: float = 0.1) -> float:
    """Return the training time of multiply-accumulates; u in [0, 1) draws a log-normal factor with mean 1."""
    return macs / device.macs_per_second * log_normal(u, sigma)


def energy(device: Device, link: Link, compute_seconds: float, up_seconds: float, down_seconds: float) -> float:
    """Return the joules of one task. A device that sends or receives idles, and its radio adds to that."""
    return (
        device.active_watts * compute_seconds
        + (device.idle_watts + link.up_watts) * up_seconds
        + (device.idle_watts + link.down_watts) * down_seconds
    )


def too_small(device: Device, needed: int) -> str | None:
    """Return a sentence if the device has too little memory to train, else None."""
    return does_not_hold(device.name, device.memory, needed)


def does_not_hold(device: str, memory: int, needed: int) -> str | None:
    """The same for a device of which only the memory is known."""
    if needed <= memory:
        return None
    return f"{device}: training needs {nbytes(needed)}, the device has {nbytes(memory)} for it."
