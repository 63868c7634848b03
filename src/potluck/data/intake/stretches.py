"""Readings in order, and where they break off: another client or recording, a pause, a clock that goes back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from potluck.data.dataset import Array, Ints
from potluck.data.split import ids
from potluck.errors import BadInput, Code

USUAL_GAPS = 5.0  # a pause of so many usual intervals breaks a recording, unless data.window.gap says otherwise
BACKWARDS = 0.05  # of the steps: rows whose clock goes back more often are not in the order of time
IRREGULAR = 0.2  # spread of the middle nine tenths of the intervals, by the usual one


@dataclass(frozen=True)
class Stretches:
    """Readings sorted by client and recording, in stored order; a stretch runs from `starts[k]` to `starts[k + 1]`."""

    order: Ints
    starts: Ints  # one more than there are stretches
    interval: float | None  # the usual seconds between readings; None: there is no clock
    irregular: bool
    pauses: int  # breaks because of a pause
    back: int  # breaks because the clock goes back


def find(
    origin: str,
    rows: int,
    client: Array | None,
    recording: Array | None,
    t: Array | None,
    gap: float | None = None,
    also: tuple[Array, ...] = (),
) -> Stretches:
    """Find the stretches; `also` are columns (labels, sides) that no stretch may mix."""
    keys = [ids(column) for column in (recording, client) if column is not None]
    order = np.lexsort((np.arange(rows), *keys)) if keys else np.arange(rows)
    new = np.zeros(rows, dtype=bool)
    new[0] = True
    for key in keys:
        new[1:] |= np.diff(key[order]) != 0
    interval, irregular, pauses, back = None, False, 0, 0
    if t is not None:
        steps = np.diff(t[order])
        inside = ~new[1:]
        interval, irregular = _usual(origin, steps[inside & (steps > 0)])
        late = inside & (steps > (gap if gap is not None else USUAL_GAPS * interval))
        backwards = inside & (steps < 0)
        pauses, back = int(late.sum()), int(backwards.sum())
        if back > max(3, BACKWARDS * max(1, inside.sum())):
            raise BadInput(
                Code.DATA_VALUE,
                f"{origin}: the time goes back in {back} of {len(steps)} steps. Sort the rows of each client and "
                "recording by time, or name the client and the recording (data.columns).",
            )
        new[1:] |= late | backwards
    for column in also:
        new[1:] |= np.diff(ids(column)[order]) != 0
    return Stretches(order, np.append(np.flatnonzero(new), rows), interval, irregular, pauses, back)


def _usual(origin: str, steps: Array) -> tuple[float, bool]:
    if not len(steps):
        raise BadInput(Code.DATA_VALUE, f"{origin}: the time never goes on within a client, so it is no clock.")
    low, middle, high = np.percentile(steps, (5, 50, 95))
    return float(middle), bool(high - low > IRREGULAR * middle)


def numbered(found: Stretches) -> Ints:
    """The number of each reading's stretch, in stored order."""
    number = np.empty(len(found.order), dtype=np.int64)
    number[found.order] = np.repeat(np.arange(len(found.starts) - 1), np.diff(found.starts))
    return number
