"""Missing values: counted by column, then refused, dropped, interpolated, marked, or left to the clients' means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from potluck.data.dataset import Array, Ints
from potluck.errors import BadInput, Code

_BLOCK = 1 << 24  # numbers looked at at a time, so that a memory-mapped x is never in memory as a whole
_NAMED = 5  # columns named in a sentence


@dataclass(frozen=True)
class Holes:
    """The missing values of x."""

    by_channel: Ints  # the last axis, however many axes x has
    rows: Array  # of each row, whether it has any

    @property
    def total(self) -> int:
        return int(self.by_channel.sum())

    def described(self, names: Sequence[str]) -> str:
        """474 missing values in 3 of 43 columns (a 158, b 158, c 158), in 158 of 5,000 rows"""
        worst = [int(k) for k in np.argsort(-self.by_channel, kind="stable") if self.by_channel[k]]
        listed = [f"{_name(names, k)} {self.by_channel[k]}" for k in worst[:_NAMED]]
        listed += [f"{len(worst) - _NAMED} more"] if len(worst) > _NAMED else []
        values = f"{self.total} missing value{'' if self.total == 1 else 's'}"
        return (
            f"{values} in {len(worst)} of {len(self.by_channel)} columns ({', '.join(listed)}), "
            f"in {int(self.rows.sum())} of {len(self.rows)} rows"
        )


def _name(names: Sequence[str], k: int) -> str:
    return names[k] if names else f"column {k}"


def find(x: Array) -> Holes | None:
    """Count the missing values (NaN); None if there is none."""
    if x.dtype.kind != "f" or not x.size or x.ndim < 1:
        return None
    wide = x if x.ndim > 1 else x[:, None]
    by_channel = np.zeros(wide.shape[-1], dtype=np.int64)
    rows = np.zeros(len(wide), dtype=bool)
    step = max(1, _BLOCK // max(1, wide[0].size))
    for start in range(0, len(wide), step):
        gone = np.isnan(np.asarray(wide[start : start + step]))
        if gone.any():
            by_channel += gone.reshape(-1, wide.shape[-1]).sum(axis=0)
            rows[start : start + step] = gone.reshape(len(gone), -1).any(axis=1)
    return Holes(by_channel, rows) if rows.any() else None


def refusal(origin: str, holes: Holes, names: Sequence[str], table: bool, settled: bool) -> BadInput:
    """Refuse missing values; the rows of a table count from 1, those of arrays from 0.

    `settled`: a run that is over has read its data without gaps, and nothing can be set any more.
    """
    first = int(np.argmax(holes.rows))
    what = "The model was trained without missing values: fill these in or leave the rows out."
    what = what if settled else "Set data.missing to drop, mean, interpolate or mask."
    return BadInput(
        Code.DATA_VALUE,
        f"{origin}: {holes.described(names)}, first in {f'data row {first + 1}' if table else f'row {first}'}. {what}",
    )


def interpolated(x: Array, t: Array | None, length: Array | None) -> Array:
    """Fill the holes of series (n, steps, channels) along each window; a channel without any value stays empty.

    Only values of the same window count, so that nothing of a test row gets into a training row.
    """
    x = np.array(x, dtype=np.float32)
    steps = np.arange(x.shape[1], dtype=np.float64)
    for row, channel in np.argwhere(np.isnan(x).any(axis=1)):
        end = x.shape[1] if length is None else int(length[row])
        values = x[row, :end, channel]
        known = ~np.isnan(values)
        if known.any():
            when = steps[:end] if t is None else np.asarray(t[row, :end], dtype=np.float64)
            values[~known] = np.interp(when[~known], when[known], values[known])
    return x


def marked(x: Array, holes: Holes, names: tuple[str, ...]) -> tuple[Array, tuple[str, ...]]:
    """Add one channel per incomplete channel: 1 where a value was measured, 0 where not."""
    incomplete = np.flatnonzero(holes.by_channel)
    flags = (~np.isnan(x[..., incomplete])).astype(np.float32)
    wide = np.concatenate([np.asarray(x, dtype=np.float32), flags], axis=-1)
    return wide, (*names, *(f"{names[k]} measured" for k in incomplete)) if names else ()
