"""Cut the readings of recordings into windows: samples that never cross a client, a recording, a pause or a split."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from potluck.data.dataset import Array, Ints
from potluck.data.intake import stretches
from potluck.data.intake.spec import Window
from potluck.data.split import ids
from potluck.errors import BadInput, Code, must_be
from potluck.units import percent

MOST_NUMBERS = 1 << 31  # of all windows together: 8 GiB as float32


@dataclass(frozen=True)
class Readings:
    """One row per moment."""

    x: Array  # (n, channels), NaN where missing
    y: Ints  # label numbers
    client: Array | None
    recording: Array | None
    t: Array | None  # seconds
    split: Array | None
    broken: Array | None = None  # rows before which something was left out


@dataclass(frozen=True)
class Cut:
    """The windows, with the reading that each begins with."""

    x: Array  # (n, steps, channels)
    y: Ints
    first: Ints  # index of the first reading of each window
    group: Ints  # recording of each window
    t: Array | None  # seconds from the window's first reading, where readings are irregular in time
    length: Ints | None  # where windows of equal seconds have unequal numbers of readings
    overlap: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Piece:
    """A window on the way: its values, its stamps, the readings of its labels, and its stretch."""

    x: Array
    t: Array | None
    labels: Ints
    first: int
    stretch: int


def cut(origin: str, given: Readings, window: Window) -> Cut:
    """Cut all readings into windows."""
    if window.seconds is not None and given.t is None:
        raise BadInput(
            Code.DATA_ARRAY,
            f"{origin}: data.window.seconds needs a column with times; name it with data.columns.time, "
            "or set data.window.samples.",
        )
    if window.rate is not None and given.t is None:
        raise BadInput(
            Code.DATA_ARRAY,
            f"{origin}: data.window.rate needs a column with times; name it with data.columns.time, or leave it out.",
        )
    also: list[Array | None] = [given.y if window.label == "same" else None, given.split]
    also.append(None if given.broken is None else np.cumsum(given.broken))
    apart = tuple(column for column in also if column is not None)
    found = stretches.find(origin, len(given.x), given.client, given.recording, given.t, window.gap, apart)
    steps, hop = _sizes(origin, found, window)
    _check_size(origin, given, found, steps, hop, window)
    pieces = list(_pieces(given, found, window, steps, hop))
    if not pieces:
        raise BadInput(
            Code.DATA_SHAPE,
            f"{origin}: no stretch of readings is long enough for a window of {_described(window, steps)}. "
            f"The longest has {int(np.diff(found.starts).max())} readings of one label without a pause.",
        )
    return _joined(given, found, window, pieces, steps, hop)


def _sizes(origin: str, found: stretches.Stretches, window: Window) -> tuple[int, float]:
    """Steps of a window, and the hop to the next in steps; for irregular windows of seconds both are in seconds."""
    if window.samples is not None:
        steps = window.samples
    else:
        assert window.seconds is not None
        assert found.interval is not None
        steps = round(window.seconds * (window.rate or 1 / found.interval))
        if steps < 2:
            wanted = f"two readings or more, which come every {found.interval:g} s"
            error = must_be(Code.DATA_SHAPE, f"{origin}: data.window.seconds", wanted, window.seconds)
            if found.interval < 1 or window.unit != "auto":
                raise error
            raise BadInput(
                Code.DATA_SHAPE,
                f"{error} The times were taken for seconds: if they are milliseconds, set data.window.unit = ms.",
            )
    return steps, max(1, round(steps * (1 - window.overlap)))


def _check_size(
    origin: str, given: Readings, found: stretches.Stretches, steps: int, hop: float, window: Window
) -> None:
    faster = 1.0 if window.rate is None or found.interval is None else max(1.0, window.rate * found.interval)
    numbers = len(given.x) * faster / hop * steps * given.x.shape[1]
    if numbers > MOST_NUMBERS:
        raise BadInput(
            Code.DATA_SHAPE,
            f"{origin}: data.window: these windows would hold {numbers:.2g} numbers, more than {MOST_NUMBERS:.2g}. "
            "Set less overlap or a lower rate.",
        )


def _is_ragged(found: stretches.Stretches, window: Window) -> bool:
    """Whether windows of equal seconds have unequal numbers of readings."""
    return window.seconds is not None and window.rate is None and found.irregular


def _pieces(given: Readings, found: stretches.Stretches, window: Window, steps: int, hop: float) -> Iterator[_Piece]:
    for number, (start, end) in enumerate(zip(found.starts[:-1], found.starts[1:], strict=True)):
        rows = found.order[start:end]
        if _is_ragged(found, window):
            yield from _by_clock(given, rows, number, window)
            continue
        x, t, at = given.x[rows], None if given.t is None else given.t[rows], np.arange(len(rows))
        if window.rate is not None:
            x, t, at = _resampled(x, t, window.rate)
        keep = found.irregular and window.rate is None
        for begin in range(0, len(x) - steps + 1, int(hop)):
            part = slice(begin, begin + steps)
            stamps = None if t is None or not keep else t[part] - t[begin]
            yield _Piece(x[part], stamps, given.y[rows[at[part]]], int(rows[at[begin]]), number)


def _by_clock(given: Readings, rows: Ints, number: int, window: Window) -> Iterator[_Piece]:
    """Cut windows of equal seconds from readings that are irregular in time."""
    assert given.t is not None
    assert window.seconds is not None
    t = given.t[rows]
    if len(t) < 2:  # a reading between two pauses
        return
    usual = float(np.median(np.diff(t)))
    begin = float(t[0])
    while begin + window.seconds <= t[-1] + usual:
        low, high = np.searchsorted(t, (begin, begin + window.seconds))
        if high - low >= 2:
            part = rows[low:high]
            yield _Piece(given.x[part], t[low:high] - t[low], given.y[part], int(part[0]), number)
        begin += window.seconds * (1 - window.overlap)


def _resampled(x: Array, t: Array | None, rate: float) -> tuple[Array, Array, Ints]:
    """Bring readings to a regular rate: means to go down, straight lines to go up; also the reading of each step."""
    assert t is not None
    count = math.floor((t[-1] - t[0]) * rate + 1e-6) + 1
    grid = t[0] + np.arange(count) / rate
    at = np.clip(np.searchsorted(t, grid + 1e-9, side="right") - 1, 0, len(t) - 1)
    usual = float(np.median(np.diff(t))) if len(t) > 1 else 0.0
    lines = np.stack([np.interp(grid, t, x[:, k]) for k in range(x.shape[1])], axis=1)
    if rate * usual >= 0.9:  # at most a tenth slower: nothing to average
        return lines, grid, at
    edges = np.searchsorted(t, np.append(grid, grid[-1] + 1 / rate) - 1e-9)
    counts = np.diff(edges)
    total = np.concatenate([np.zeros((1, x.shape[1])), np.cumsum(np.nan_to_num(x), axis=0)])
    gone = np.concatenate([np.zeros((1, x.shape[1])), np.cumsum(np.isnan(x), axis=0)])
    known = counts[:, None] - np.diff(gone[edges], axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.diff(total[edges], axis=0) / known
    return np.where((counts > 0)[:, None], means, lines), grid, at


def _joined(
    given: Readings, found: stretches.Stretches, window: Window, pieces: list[_Piece], steps: int, hop: float
) -> Cut:
    ragged = _is_ragged(found, window)
    length = np.array([len(piece.x) for piece in pieces], dtype=np.int64) if ragged else None
    longest = steps if length is None else int(length.max())
    x = np.zeros((len(pieces), longest, given.x.shape[1]), dtype=np.float32)
    t = np.zeros((len(pieces), longest), dtype=np.float32) if pieces[0].t is not None else None
    for k, piece in enumerate(pieces):
        x[k, : len(piece.x)] = piece.x
        if t is not None and piece.t is not None:
            t[k, : len(piece.x)] = piece.t
            t[k, len(piece.x) :] = piece.t[-1]
    y = np.array([_label(piece.labels, window.label) for piece in pieces], dtype=np.int64)
    first = np.array([piece.first for piece in pieces], dtype=np.int64)
    overlap = math.ceil(1 / (1 - window.overlap) - 1e-9) - 1 if ragged else math.ceil(steps / hop) - 1
    return Cut(
        x, y, first, _groups(given, found, window, pieces), t, length, overlap, _notes(given, found, window, x, pieces)
    )


def _label(labels: Ints, rule: str) -> int:
    return int(np.argmax(np.bincount(labels))) if rule == "majority" else int(labels[-1])


def _groups(given: Readings, found: stretches.Stretches, window: Window, pieces: list[_Piece]) -> Ints:
    """The recording of each window: the named one, or else the stretch without a break that it lies in."""
    number = np.array([piece.stretch for piece in pieces], dtype=np.int64)
    if given.recording is None:
        return number
    first = found.order[found.starts[number]]
    keys = [ids(column)[first] for column in (given.recording, given.client) if column is not None]
    return np.unique(np.stack(keys, axis=1), axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _described(window: Window, steps: int) -> str:
    return f"{steps} readings" if window.seconds is None else f"{window.seconds:g} s"


def _notes(
    given: Readings, found: stretches.Stretches, window: Window, x: Array, pieces: list[_Piece]
) -> tuple[str, ...]:
    every = "" if found.interval is None else f", one every {found.interval:.4g} s"
    notes = [
        f"Windows: {len(given.x)} readings{every} became {len(x)} windows of {x.shape[1]} steps "
        f"({_described(window, x.shape[1])}, overlap {window.overlap:g}) in {len(found.starts) - 1} stretches."
    ]
    if found.pauses or found.back:
        limit = window.gap if window.gap is not None else stretches.USUAL_GAPS * (found.interval or 0)
        notes.append(
            f"Recordings break off at {found.pauses} pauses of more than {limit:.3g} s (data.window.gap) and where "
            f"the time goes back ({found.back} times)."
        )
    sizes = np.diff(found.starts)
    short = ~np.isin(np.arange(len(sizes)), [piece.stretch for piece in pieces])
    if short.any():
        share = float(sizes[short].sum() / len(given.x))
        notes.append(
            f"{short.sum()} of {len(sizes)} stretches, with {percent(share)} of the readings, are too short for a "
            "window and are left out."
        )
    if found.irregular and window.rate is None:
        notes.append("The readings are irregular in time: their stamps are kept (data.window.rate resamples them).")
    return tuple(notes)
