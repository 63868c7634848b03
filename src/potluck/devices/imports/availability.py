"""Traces of when devices can be reached: intervals of each user, and the habits that follow from them."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from potluck.errors import BadInput, Code, no_file

Intervals = Sequence[tuple[float, float]]  # seconds, from and to
ON, OFF = "battery_charged_on", "battery_charged_off"
LARGEST = 1 << 30  # bytes of a file


@dataclass(frozen=True)
class Habits:
    """What the simulator needs of many users' intervals."""

    users: int
    on_share: float  # of the time, mean over users
    period: float  # seconds from one beginning to the next, median
    opens: float | None  # hour of the day at which most intervals begin (circular mean); None without a clock
    closes: float | None


def flash(path: Path) -> dict[str, Intervals]:
    """FLASH's state_traces.json: per user a text of `YYYY-MM-DD HH:MM:SS<tab>event` lines. Intervals of charging.

    Seconds count from midnight before a user's first line.
    """
    try:
        users = json.loads(read_bytes(path))
    except ValueError as error:
        raise BadInput(Code.DEVICE_FILE, f"{path}: must be JSON ({error}).") from None
    if not isinstance(users, dict):
        raise BadInput(Code.DEVICE_FILE, f"{path}: must be an object with a user per entry.")
    found = {str(name): _charging(path, str(name), one) for name, one in users.items()}
    return {name: one for name, one in found.items() if one}


def _charging(path: Path, user: str, one: Any) -> Intervals:
    text = one.get("messages") if isinstance(one, dict) else one
    if not isinstance(text, str):
        raise BadInput(Code.DEVICE_FILE, f"{path}: user {user!r} must have a text of lines.")
    events = []
    for line in text.splitlines():
        stamp, tab, event = line.partition("\t")
        if tab and event.strip().lower() in (ON, OFF):
            try:
                events.append((datetime.fromisoformat(stamp.strip()), event.strip().lower()))
            except ValueError:
                raise BadInput(Code.DEVICE_FILE, f"{path}: user {user!r}: {stamp!r} is no date and time.") from None
    if not events:
        return []
    events.sort(key=lambda one: one[0])
    midnight = events[0][0].replace(hour=0, minute=0, second=0, microsecond=0)
    intervals: list[tuple[float, float]] = []
    begun: float | None = None
    for moment, event in events:
        at = (moment - midnight).total_seconds()
        if event == ON and begun is None:
            begun = at
        elif event == OFF and begun is not None:
            intervals.append((begun, at))
            begun = None
    return intervals


class _Plain(pickle.Unpickler):
    """Reads numbers, texts, lists and dicts. Anything else names a class, and no class is loaded."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it holds {module}.{name}")


def fedscale(path: Path) -> dict[str, Intervals]:
    """FedScale's client_behave_trace: client -> {active: [...], inactive: [...], finish_time: ...} in seconds."""
    try:
        users = _Plain(io.BytesIO(read_bytes(path))).load()
    except (pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError, AttributeError, TypeError) as error:
        raise BadInput(
            Code.DEVICE_FILE, f"{path}: must be a pickle of plain numbers, lists and dicts ({error})."
        ) from None
    if not isinstance(users, dict):
        raise BadInput(Code.DEVICE_FILE, f"{path}: must be a dict with a client per entry.")
    found: dict[str, Intervals] = {}
    for name, one in users.items():
        lists: list[Any] = [one.get(key) for key in ("active", "inactive")] if isinstance(one, Mapping) else [None]
        if not all(isinstance(value, list) and all(_is_time(at) for at in value) for value in lists):
            raise BadInput(
                Code.DEVICE_FILE, f"{path}: client {name!r} must have lists of seconds, active and inactive."
            )
        active, inactive = sorted(lists[0]), sorted(lists[1])
        ends = [next((end for end in inactive if end > begin), None) for begin in active]
        intervals = [(float(a), float(b)) for a, b in zip(active, ends, strict=True) if b is not None]
        if intervals:
            found[str(name)] = intervals
    return found


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12


def read_bytes(path: Path) -> bytes:
    """The content of a file that is not too large."""
    try:
        if path.stat().st_size > LARGEST:
            raise BadInput(Code.DEVICE_FILE, f"traces: {path} must have at most {LARGEST} bytes.")
        return path.read_bytes()
    except FileNotFoundError:
        raise no_file(Code.DEVICE_FILE, "traces", path) from None
    except OSError as error:
        raise BadInput(Code.DEVICE_FILE, f"traces: {path} cannot be read: {error}.") from None


def habits(users: Mapping[str, Intervals], clock: bool) -> Habits:
    """The share of the time, the usual cycle and, where seconds count from midnight, the usual hours."""
    shares, cycles, opens, closes = [], [], [], []
    for intervals in users.values():
        begins = [begin for begin, _ in intervals]
        if len(intervals) < 2:
            continue
        span = begins[-1] - begins[0]
        shares.append(min(1.0, sum(end - begin for begin, end in intervals[:-1]) / span) if span else 1.0)
        cycles += list(np.diff(begins))
        opens += begins
        closes += [end for _, end in intervals]
    if not shares or not np.mean(shares):
        raise BadInput(Code.DEVICE_FILE, "traces: must have a user with two intervals or more, got none.")
    hours = (_hour(opens), _hour(closes)) if clock else (None, None)
    return Habits(len(users), float(np.mean(shares)), float(max(1.0, np.median(cycles))), *hours)


def _hour(moments: Sequence[float]) -> float:
    """The circular mean of hours of the day."""
    angles = np.array(moments) / 86_400 * 2 * np.pi
    mean = np.arctan2(np.sin(angles).mean(), np.cos(angles).mean())
    return float(round(mean / (2 * np.pi) * 24 % 24, 2) % 24)
