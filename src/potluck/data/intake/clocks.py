"""Columns that are a clock: recognised by their values, and read as seconds."""

from __future__ import annotations

import numpy as np

from potluck.data.dataset import Array, Ints
from potluck.data.intake.roles import plain
from potluck.data.intake.spec import UNITS
from potluck.errors import Code, must_be

LEAST_ROWS = 20  # fewer rows show no order
RISING = 0.98  # of the steps within a client go up: a clock, or a count of the rows
_SUFFIXES = {"ms": "ms", "millis": "ms", "milliseconds": "ms", "us": "us", "ns": "ns"}
_EPOCH = (("ns", 1e17), ("us", 1e14), ("ms", 1e11))  # numbers from here on are times since 1970 in that unit


def rises(values: Array, client: Ints | None) -> bool:
    """Whether numbers go up from row to row within each client, as a clock or a count of the rows does."""
    if len(values) < LEAST_ROWS or not np.isfinite(values).all():
        return False
    if client is not None:
        order = np.argsort(client, kind="stable")
        same = np.diff(client[order]) == 0
        steps = np.diff(values[order])[same]
    else:
        steps = np.diff(values)
    return bool(len(steps) >= LEAST_ROWS // 2 and np.mean(steps > 0) >= RISING)


def dates(column: Array) -> Array | None:
    """Read text such as 2026-05-01 12:30:00.5 as times; None if any cell is something else."""
    if column.dtype.kind == "M":
        return column.astype("datetime64[us]")
    if column.dtype.kind != "U" or not len(column) or "-" not in str(column[0]):
        return None
    cells = np.char.strip(column)
    cells = np.where(np.char.endswith(cells, "Z"), np.char.rstrip(cells, "Z"), cells)
    try:
        times = cells.astype("datetime64[us]")
    except ValueError:
        return None
    return None if np.isnat(times).any() else times


def numbers(column: Array) -> Array | None:
    """The column as finite numbers, or None."""
    if column.dtype.kind not in "iufU":
        return None
    try:
        values = column.astype(np.float64)
    except ValueError:
        return None
    return values if np.isfinite(values).all() else None


def seconds(origin: str, name: str, column: Array, unit: str) -> tuple[Array, str | None]:
    """Return a time column in seconds from its first value on, and a note on the unit where it was inferred."""
    times = dates(column)
    if times is not None:
        return (times - times.min()).astype(np.int64) / 1e6, None
    values = numbers(column)
    if values is None:
        wanted = "numbers, or times such as 2026-05-01 12:30:00, without a gap"
        shown = f"{column.dtype} values such as {str(column[0])!r}"
        raise must_be(Code.DATA_VALUE, f"{origin}: the time {name!r}", wanted, shown=shown)
    if column.dtype.kind in "iu":
        relative = (column - column.min()).astype(np.float64)  # before floats lose the last digits of nanoseconds
    elif column.dtype.kind == "U" and all(cell.strip().lstrip("+-").isdecimal() for cell in column[:50]):
        relative = _whole(column, values)
    else:
        relative = values - values.min()
    note = None
    if unit == "auto":
        unit = _SUFFIXES.get(plain(name).rpartition("_")[2], "")
        if not unit:
            unit = next((each for each, least in _EPOCH if values.min() >= least), "s")
            if unit == "s":
                note = "in seconds (data.window.unit says otherwise)"
    return relative * UNITS[unit], note


def _whole(column: Array, values: Array) -> Array:
    try:
        whole = column.astype(np.int64)
    except (ValueError, OverflowError):
        return np.asarray(values - values.min())
    return np.asarray((whole - whole.min()).astype(np.float64))
