"""Traces of a network's rate over time: one value per second, down or up."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from potluck.devices.imports.availability import read_bytes
from potluck.devices.imports.speeds import is_speeds
from potluck.errors import BadInput, Code

PACKET = 1500  # bytes that a line of a mahimahi trace lets through
MOST = 200_000  # seconds of one trace; more than two days
LEAST = 10


@dataclass(frozen=True)
class Rates:
    """Mbit/s in each second; `up` is None where a trace has one way only."""

    down: tuple[float, ...] | None
    up: tuple[float, ...] | None
    source: str

    @property
    def factors(self) -> tuple[float, ...]:
        """The rate in each second over its mean; of the way down where both are known."""
        values = np.array(self.down if self.down is not None else self.up)
        return tuple(float(value) for value in np.round(values / values.mean(), 4))

    def mean(self, way: str) -> float | None:
        """Mean Mbit/s of a way, or None."""
        values = self.down if way == "down" else self.up
        return None if values is None else float(np.mean(values))


def lumos5g(path: Path) -> Rates:
    """Lines of `second Mbit/s`, or of Mbit/s alone (Lumos5G, in SIGCOMM21-5G/artifact)."""
    values = []
    for number, line in enumerate(_lines(path), 1):
        parts = line.split()
        if parts:
            values.append(_number(path, number, parts[-1]))
    return Rates(_checked(path, values), None, f"measured: {path.name}, {len(values)} s of a Lumos5G trace")


def ucc5g(path: Path) -> Rates:
    """A table with Timestamp, DL_bitrate and UL_bitrate in kbit/s (uccmisl/5Gdataset), averaged by second."""
    reader = csv.DictReader(_lines(path))
    needed = {"Timestamp", "DL_bitrate", "UL_bitrate"}
    if not needed <= set(reader.fieldnames or ()):
        raise BadInput(Code.DEVICE_FILE, f"{path}: must have the columns {', '.join(sorted(needed))}.")
    down: defaultdict[str, list[float]] = defaultdict(list)
    up: defaultdict[str, list[float]] = defaultdict(list)
    for number, row in enumerate(reader, 2):
        down[row["Timestamp"]].append(_number(path, number, row["DL_bitrate"]) / 1000)
        up[row["Timestamp"]].append(_number(path, number, row["UL_bitrate"]) / 1000)
    seconds = sorted(down)
    received, sent = (_checked(path, [float(np.mean(way[second])) for second in seconds]) for way in (down, up))
    return Rates(received, sent, f"measured: {path.name}, {len(seconds)} s of the UCC 5G production data set")


def mahimahi(path: Path) -> Rates:
    """One millisecond per line, at which a packet of 1500 bytes may pass; the name ends in .up or .down."""
    stamps = [int(_number(path, number, line)) for number, line in enumerate(_lines(path), 1) if line.strip()]
    if not stamps or max(stamps) // 1000 >= MOST:
        raise BadInput(Code.DEVICE_FILE, f"{path}: must have milliseconds below {MOST * 1000}, one per line.")
    packets = np.bincount(np.array(stamps) // 1000)
    values = _checked(path, [float(value) for value in packets * PACKET * 8 / 1e6])
    source = f"measured: {path.name}, {len(values)} s of a mahimahi trace"
    return Rates(None, values, source) if path.suffix == ".up" else Rates(values, None, source)


def guess(path: Path) -> str:
    """The kind of a file, by its name and its first bytes."""
    if path.suffix in (".up", ".down"):
        return "mahimahi"
    content = read_bytes(path)
    if content[:1] == b"\x80":  # a pickle; FedScale's file has no suffix
        return "fedscale"
    if path.suffix == ".json":
        return "flash-speed" if is_speeds(path) else "flash"
    first = content.partition(b"\n")[0]
    if b"hardware_power" in first:
        return "power5g"
    return "ucc5g" if b"DL_bitrate" in first else "lumos5g"


def _lines(path: Path) -> list[str]:
    try:
        return read_bytes(path).decode().splitlines()
    except UnicodeDecodeError as error:
        raise BadInput(Code.DEVICE_FILE, f"traces: {path} cannot be read as text: {error}.") from None


def _number(path: Path, line: int, given: str) -> float:
    try:
        value = float(given)
    except (TypeError, ValueError):
        raise BadInput(Code.DEVICE_FILE, f"{path}, line {line}: must be a number, got {given!r}.") from None
    if not 0 <= value < 1e9:
        raise BadInput(Code.DEVICE_FILE, f"{path}, line {line}: must be a number from 0 to 1e9, got {given!r}.")
    return value


def _checked(path: Path, values: Sequence[float]) -> tuple[float, ...]:
    if not LEAST <= len(values) <= MOST:
        raise BadInput(Code.DEVICE_FILE, f"{path}: must have {LEAST} to {MOST} seconds, got {len(values)}.")
    if not any(values):
        raise BadInput(Code.DEVICE_FILE, f"{path}: nothing was ever sent.")
    return tuple(values)
