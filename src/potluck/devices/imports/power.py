"""Measured power of a 5G radio by throughput and signal strength, as a straight line for each range of the signal."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from potluck.errors import BadInput, Code

COLUMNS = ("nr_ssRsrp", "hardware_power", "downlink_Mbps", "uplink_Mbps")  # dBm, milliwatts
RANGES = ((-140, -100), (-100, -90), (-90, -80), (-80, -40))  # dBm
LEAST = 20  # rows from which a line is fitted


@dataclass(frozen=True)
class Power:
    """watts = base + down x Mbit/s down + up x Mbit/s up, over `rows` measured seconds."""

    signal: tuple[int, int] | None  # dBm; None for all
    rows: int
    base: float
    down: float
    up: float
    error: float  # median relative error of the line

    def watts(self, mbps: float, up: bool) -> float:
        return max(0.0, self.base + (self.up if up else self.down) * mbps)


def power_5g(path: Path) -> list[Power]:
    """Read a table of SIGCOMM21-5G/artifact (mn-combined_all.csv): the line over all rows first, then by signal."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            if not set(COLUMNS) <= set(reader.fieldnames or ()):
                raise BadInput(Code.DEVICE_FILE, f"{path}: must have the columns {', '.join(COLUMNS)}.")
            rows = [_row(row) for row in reader]
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(Code.DEVICE_FILE, f"traces: {path} cannot be read as text: {error}.") from None
    values = np.array([row for row in rows if row is not None])
    if len(values) < LEAST:
        raise BadInput(Code.DEVICE_FILE, f"{path}: must have {LEAST} complete rows or more, got {len(values)}.")
    found = [_line(None, values)]
    for low, high in RANGES:
        part = values[(values[:, 0] >= low) & (values[:, 0] < high)]
        if len(part) >= LEAST:
            found.append(_line((low, high), part))
    return found


def _row(row: dict[str, str]) -> tuple[float, ...] | None:
    """A row with all four numbers, or None."""
    try:
        found = tuple(float(row[name]) for name in COLUMNS)
    except (TypeError, ValueError):
        return None
    return found if np.isfinite(found).all() and found[1] > 0 else None


def _line(signal: tuple[int, int] | None, values: NDArray[np.float64]) -> Power:
    watts = values[:, 1] / 1000
    (base, down, up), *_ = np.linalg.lstsq(np.c_[np.ones(len(values)), values[:, 2:]], watts, rcond=None)
    error = np.median(np.abs(base + values[:, 2] * down + values[:, 3] * up - watts) / watts)
    return Power(signal, len(values), float(base), float(down), float(up), float(error))
