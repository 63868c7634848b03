"""Fit a device's figures to measured tasks: what an operation, a byte of memory traffic and a multiply-accumulate cost.

The time of a task's work is taken as ops x a + recorded x b + moved x c + fresh x d + macs x e, none below 0. Small
networks pay for operations, above all for those recorded for gradients, wide ones for memory traffic, and only the
largest for arithmetic. That is why one speed per device misses unlike networks by a factor of ten. Deviations are
relative, so that short tasks count as much as long ones, and absolute, so that a network that the form misses does not
draw the others away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog, nnls

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
    found = _least_deviations(counts / scale / worked[:, None])
    per_op, per_recorded, per_byte, per_fresh, per_mac = found / scale
    speed = Speed(_rate(per_mac), _rate(per_byte), _rate(per_fresh), float(per_op), float(per_recorded), 0.0, None)
    return replace(speed, jitter=_jitter(tasks, worked / np.array([speed.seconds(task) for task in tasks])))


def _least_deviations(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """The x, none below 0, for which the sum of |shares x - 1| is least: a linear program."""
    rows, terms = shares.shape
    cost = np.concatenate([np.zeros(terms), np.ones(2 * rows)])  # what is too much, and what is missing
    both = np.hstack([shares, -np.eye(rows), np.eye(rows)])
    return np.asarray(linprog(cost, A_eq=both, b_eq=np.ones(rows), bounds=(0, None)).x[:terms])


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


@dataclass(frozen=True)
class Memory:
    """What a client's process takes: so much without a task, and so many times what a task's tensors need.

    The factor is above 1: an allocator keeps what was freed, and a message is there as bytes and as tensors.
    """

    process: int  # bytes
    factor: float

    def peak(self, needed: int) -> float:
        return self.process + self.factor * needed


def fit_memory(peaks: Sequence[tuple[int, int]]) -> Memory:
    """Fit to (peak of the process, counted bytes) of several networks: relative least squares, neither part below 0."""
    high = np.array([peak for peak, _ in peaks], dtype=float)
    needed = np.array([counted for _, counted in peaks], dtype=float)
    scale = max(1.0, float(needed.max()))
    (process, factor), _ = nnls(np.stack([np.ones(len(peaks)) / high, needed / scale / high], axis=1), high / high)
    return Memory(round(float(process)), float(factor) / scale)
