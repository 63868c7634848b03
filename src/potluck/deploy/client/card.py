"""What a machine says of itself and its clients when a server says hello: device figures, sample counts, labels."""

from __future__ import annotations

import shutil
import time
from typing import Any

import torch

from potluck import devices
from potluck.deploy.client.owner import THIS, Owner
from potluck.deploy.client.rows import LocalRows
from potluck.fleet import ClientId
from potluck.runs.pairing import AP, DEVICE


def card(owner: Owner, name: ClientId, partner: ClientId | None, rows: LocalRows, figures: dict[str, Any]) -> Any:
    """One client's entry in the answer to a hello. `figures` are those of this machine."""
    is_ap = name != owner.name
    device = str(owner.access_point) if is_ap else owner.device
    data = rows.dataset
    return {
        "name": name,
        "kind": AP if is_ap else DEVICE if owner.access_point else "client",
        "partner": partner,
        **(figures if device == THIS else _of_catalogue(device)),
        "train": 0 if is_ap else rows.count("train"),
        "test": 0 if is_ap else rows.count("test"),
        "valid": 0 if is_ap else rows.count("valid"),
        "shape": list(data.sample_shape),
        "classes": list(data.class_names),
        "times": data.t is not None,
        "lengths": data.length is not None,
    }


def figures_here(owner: Owner) -> dict[str, Any]:
    """Measure this machine."""
    return {
        "device": THIS,
        "link": "network",
        "memory": free_memory(),
        "storage": shutil.disk_usage(owner.home if owner.home.exists() else ".").free,
        "macs_per_second": _speed(),
    }


def _of_catalogue(name: str) -> dict[str, Any]:
    device = devices.catalogue()[name]
    return {
        "device": device.name,
        "link": device.link,
        "memory": device.memory,
        "storage": device.storage,
        "macs_per_second": device.macs_per_second,
    }


def free_memory() -> int | None:
    """Bytes of free memory, where the system tells."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return None


def _speed(seconds: float = 0.1) -> float:
    """Multiply-accumulates per second of small matrix products, which is what training mostly is."""
    a, b = torch.ones(64, 256), torch.ones(256, 128)
    began, rounds = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        a @ b
        rounds += 1
    return rounds * 64 * 256 * 128 / (time.monotonic() - began)
