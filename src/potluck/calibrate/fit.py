"""Fit a device's figures to measured tasks: what an operation, a byte of memory traffic and a multiply-accumulate cost.

The time of a task's work is taken as ops x a + recorded x b + moved x c + fresh x d + macs x e, none below 0. Small
networks pay for operations, above all for those recorded for gradients, wide ones for memory traffic, and only the
largest for arithmetic. That is why one speed per device misses unlike networks by a factor of ten. Residuals are
relative, so that short tasks count as much as long ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

NO_LIMIT = 1e18  # per second, for a cost that the fit found to be 0
LARGEST_JITTER = 1.0


@dataclass(frozen=True)
class Timed:
    """A task that ran: what it costs by count, and what it took."""

    network: str
    method: str
    client: str
    order: int  # of the client's tasks in its run
    macs: float
    ops: float
    recorded: float
    moved: float  # bytes
    memory: int  # bytes, as counted
    bytes_down: int
    bytes_up: int
    worked: float  # seconds, by the client's clock
    seconds: float  # from sending to arrival
    arrived: float
    fresh: float = 0.0  # bytes of large new results


@dataclass(frozen=True)
class Speed:
    """How fast a device works."""

    macs_per_second: float
    moves_per_second: float
    fresh_per_second: float
    op_seconds: float
    recorded_op_seconds: float
    jitter: float  # sigma of the log of measured over fitted, between tasks of one network
    error: float | None  # median relative error on a network left out of the fit; None with one network

    def seconds(self, task: Timed) -> float:
        operations = task.ops * self.op_seconds + task.recorded * self.recorded_op_seconds
        memory = task.moved / self.moves_per_second + task.fresh / self.fresh_per_second
        return operations + memory + task.macs / self.macs_per_second


def fit_speed(tasks: Sequence[Timed]) -> Speed:
    """The speed of one device from its tasks; the error is that of leaving out each network in turn."""
    speed = _fitted(tasks)
    networks = sorted({task.network for task in tasks})
    errors = []
    for left in networks if len(networks) > 1 else []:
        without = _fitted([task for task in tasks if task.network != left])
        errors += [abs(without.seconds(task) / task.worked - 1) for task in tasks if task.network == left]
    return replace(speed, error=float(np.median(errors)) if errors else None)


def _fitted(tasks: Sequence[Timed]) -> Speed:
    counts = np.array([[task.ops, task.recorded, task.moved, task.fresh, task.macs] for task in tasks])
    worked = np.array([task.worked for task in tasks])
    scale = np.maximum(counts.max(axis=0), 1e-300)
    found, _ = nnls(counts / scale / worked[:, None], np.ones(len(tasks)))
    per_op, per_recorded, per_byte, per_fresh, per_mac = found / scale
    speed = Speed(_rate(per_mac), _rate(per_byte), _rate(per_fresh), float(per_op), float(per_recorded), 0.0, None)
    return replace(speed, jitter=_jitter(tasks, worked / np.array([speed.seconds(task) for task in tasks])))


def _jitter(tasks: Sequence[Timed], ratios: NDArray[np.float64]) -> float:
    """The sigma of the logs of measured over fitted, between tasks that cost the same.

    A network that the fit misses is slow in all its tasks: that is the fit's error and no jitter. With one task of each
    network nothing tells the two apart, and all counts as jitter.
    """
    logs, names = np.log(ratios), np.array([task.network for task in tasks])
    groups = [logs[names == name] for name in sorted(set(names))]
    free = len(logs) - len(groups)
    if not free:
        return min(LARGEST_JITTER, float(np.std(logs)))
    inside = sum(float(((group - group.mean()) ** 2).sum()) for group in groups)
    return min(LARGEST_JITTER, float(np.sqrt(inside / free)))


def _rate(seconds: float) -> float:
    return float(1.0 / seconds) if seconds > 1.0 / NO_LIMIT else NO_LIMIT


@dataclass(frozen=True)
class Way:
    """What messages cost a client beyond its link's rates: seconds per message and per byte, and how they differ."""

    latency: float  # one way
    byte_seconds: float  # to encrypt, encode and write a byte, either way
    jitter: float

    def rate(self, link: float) -> float:
        """The bit/s that are left of a link's rate."""
        return 8.0 / (8.0 / link + self.byte_seconds)


def fit_way(tasks: Sequence[Timed], up: float, down: float) -> Way:
    """What tasks took beyond their work and their bytes at the link's rates: a part per task and a part per byte.

    Relative least squares, neither part below 0. Half of the part per task is the latency of each way.
    """
    moved = np.array([float(task.bytes_down + task.bytes_up) for task in tasks])
    sent = np.array([8 * (task.bytes_down / down + task.bytes_up / up) for task in tasks])
    rest = np.maximum(np.array([task.seconds - task.worked for task in tasks]), 1e-3)
    scale = max(1.0, float(moved.max()))
    counts = np.stack([np.ones(len(tasks)), moved / scale], axis=1)
    (constant, per_scale), _ = nnls(counts / rest[:, None], np.maximum(0.0, rest - sent) / rest)
    jitter = _jitter(tasks, rest / np.maximum(sent + constant + per_scale * moved / scale, 1e-3))
    return Way(float(constant) / 2, float(per_scale) / scale, jitter)


def fit_memory(peaks: Sequence[tuple[int, int]]) -> int:
    """The bytes of a client's process without the task: the median of (peak of the process - counted peak)."""
    return round(max(0.0, float(np.median([peak - counted for peak, counted in peaks]))))
