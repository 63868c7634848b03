"""How fast users' links are on average, and how much one of them varies: FLASH's `speed_distri.json`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from potluck.devices.imports.availability import read_bytes
from potluck.errors import BadInput, Code

BITS = 1024 * 8  # per kB of the file
COLUMNS = ("up_u", "up_sigma", "down_u", "down_sigma")


@dataclass(frozen=True)
class Speeds:
    """Links of several users."""

    users: int
    up: float  # bit/s, geometric mean over users
    down: float
    spread: float  # sigma of the logs of the users' mean rates, both ways
    jitter: float  # sigma of a log-normal factor within one user's link


def flash_speed(path: Path) -> Speeds:
    """Per user the mean and the standard deviation of the rates up and down, in kB/s (FLASH)."""
    try:
        users = json.loads(read_bytes(path))
    except ValueError as error:
        raise BadInput(Code.DEVICE_FILE, f"{path}: must be JSON ({error}).") from None
    if not isinstance(users, dict) or not users:
        raise BadInput(Code.DEVICE_FILE, f"{path}: must be an object with a user per entry.")
    up, up_spread, down, down_spread = np.array([_row(path, name, one) for name, one in users.items()]).T
    logs = [np.log(way) for way in (up, down)]
    varied = np.concatenate([up_spread / up, down_spread / down])
    return Speeds(
        users=len(users),
        up=float(np.exp(logs[0].mean())) * BITS,
        down=float(np.exp(logs[1].mean())) * BITS,
        spread=float(np.mean([way.std() for way in logs])),
        jitter=float(np.median([math.sqrt(math.log1p(one**2)) for one in varied])),
    )


def is_speeds(path: Path) -> bool:
    """Whether a JSON file looks like one of these."""
    return b'"down_u"' in read_bytes(path)[:4096]


def _row(path: Path, name: str, one: Any) -> list[float]:
    found = []
    for column in COLUMNS:
        value = one.get(column) if isinstance(one, Mapping) else None
        least = 1e-3 if column.endswith("_u") else 0.0
        if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value < 1e9:
            wanted = f"{', '.join(COLUMNS)} in kB/s, means above 0"
            raise BadInput(Code.DEVICE_FILE, f"{path}: user {name!r} must have {wanted}.")
        found.append(float(value))
    return found
