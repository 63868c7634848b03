"""Change the sampling rate: means over longer intervals to go down, a cubic spline to go up.

As FedCFC (section 3.1.3) makes 30 Hz and 100 Hz tests from 50 Hz windows.
"""

from __future__ import annotations

from math import floor

import numpy as np

from potluck.data.dataset import Array


def resampled(x: Array, rate: float, to: float) -> tuple[Array, Array]:
    """Resample series (n, T, channels) from `rate` to the rate `to`; also return the time stamps in seconds (T',).

    A sample stands for the interval that begins with it; stamps are the middles of the intervals, from the first on.
    """
    steps = x.shape[1]
    count = floor(steps * to / rate + 1e-9)
    middles = (np.arange(count) + 0.5) / to
    if to < rate:
        return _means(x, np.arange(count + 1) * rate / to), (middles - middles[0]).astype(np.float32)
    from scipy.interpolate import CubicSpline  # here, for it takes half a second to import

    spline = CubicSpline((np.arange(steps) + 0.5) / rate, x, axis=1)
    inside = np.clip(middles, 0.5 / rate, (steps - 0.5) / rate)  # no guesses before the first and after the last sample
    return spline(inside).astype(np.float32), (middles - middles[0]).astype(np.float32)


def _means(x: Array, edges: Array) -> Array:
    """Take the mean over each interval between two edges; an edge may lie inside a sample."""
    total = np.concatenate([np.zeros_like(x[:, :1], dtype=np.float64), np.cumsum(x, axis=1, dtype=np.float64)], axis=1)
    whole = np.minimum(np.floor(edges).astype(np.int64), x.shape[1] - 1)
    at = total[:, whole] + (edges - whole)[:, None] * x[:, whole]
    return np.asarray(np.diff(at, axis=1) / np.diff(edges)[:, None], dtype=np.float32)
