"""What work costs on a device: seconds, joules, and whether it fits at all."""

from __future__ import annotations

from potluck.devices.draws import log_normal
from potluck.devices.profile import Device, Link
from potluck.devices.units import nbytes


def compute_seconds(device: Device, macs: float, u: float, sigma: float = 0.1) -> float:
    """Training time of so many multiply-accumulates; u in [0, 1) draws a log-normal factor with mean 1."""
    return macs / device.macs_per_second * log_normal(u, sigma)


def energy(device: Device, link: Link, compute_seconds: float, up_seconds: float, down_seconds: float) -> float:
    """Joules of one task. While it sends or receives, a device idles and its radio adds to that."""
    return (
        device.active_watts * compute_seconds
        + (device.idle_watts + link.up_watts) * up_seconds
        + (device.idle_watts + link.down_watts) * down_seconds
    )


def too_small(device: Device, needed: int) -> str | None:
    """One sentence if the device cannot hold a training of so many bytes, else None."""
    if needed <= device.memory:
        return None
    return f"{device.name}: training needs {nbytes(needed)}, the device has {nbytes(device.memory)} for it."
