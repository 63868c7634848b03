"""Two digits spoken at once, of the spoken_digits set: which ones were said? Several labels at once.

Powers add up, so two recordings of a speaker are added in the power of each mel band. Both come from the same side of
the published split.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from potluck.data.load import load
from potluck.keys import rng

PAIRS = 2  # how often each recording is one of two


def two_digits() -> dict[str, Any]:
    """Return pairs of recordings, as many columns of 0 and 1 as there are digits, and the speakers."""
    one = load("spoken_digits")
    assert one.subject is not None
    assert one.split is not None
    draw = rng("two digits")
    first, second = [], []
    for side in np.unique(one.split):
        for speaker in np.unique(one.subject):
            mine = np.flatnonzero((one.split == side) & (one.subject == speaker))
            for _ in range(PAIRS):
                first.append(mine)
                second.append(draw.permutation(mine))
    a, b = np.concatenate(first), np.concatenate(second)
    apart = one.y[a] != one.y[b]
    a, b = a[apart], b[apart]
    y = np.zeros((len(a), one.classes), dtype=np.int64)
    y[np.arange(len(a)), one.y[a]] = y[np.arange(len(a)), one.y[b]] = 1
    x = np.logaddexp(one.x[a].astype(np.float32), one.x[b].astype(np.float32))
    return {"x": x, "y": y, "subject": one.subject[a], "split": one.split[a]}
