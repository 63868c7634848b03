"""How many clients were receiving, training and sending at each moment of virtual time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from potluck.report.reading.client_facts import Floats, Tasks
from potluck.units import percent, plural, quantity

BINS = 240
KINDS = ("receiving", "training", "sending")
WORDS = {"receiving": "receiving the task", "training": "training", "sending": "sending the update"}
TROUBLE = ("refused", "lost", "late")
NO_WORK = ("post", "unfit")  # a post gets no answer, and a device with too little memory does not begin


@dataclass(frozen=True)
class Activity:
    """Mean number of clients in each activity, in bins of virtual time."""

    edges: Floats
    at: dict[str, Floats]
    clients: int

    def share(self, kind: str) -> float:
        return float(self.at[kind].mean() / max(1, self.clients))


def activity(found: Tasks, clients: int, end: float, bins: int = BINS) -> Activity:
    """Exact means: each bin has the time spent in it, divided by its length."""
    edges = np.linspace(0.0, end or 1.0, bins + 1)
    real = np.array([outcome not in NO_WORK for outcome in found.outcome], dtype=bool)
    moments = [part[real] for part in (found.sent, found.started, found.trained, found.arrived)]
    at = {
        kind: np.diff(_spent(a, np.maximum(a, b), edges)) / np.diff(edges)
        for kind, a, b in zip(KINDS, moments, moments[1:], strict=False)
    }
    return Activity(edges, at, clients)


def _spent(start: Floats, stop: Floats, until: Floats) -> Floats:
    """Time spent in all intervals up to each moment: the sum of min(t, stop) - min(t, start)."""
    return _passed(start, until) - _passed(stop, until)


def _passed(since: Floats, until: Floats) -> Floats:
    """Sum of max(0, t - s) over s, for every t."""
    ordered = np.sort(since)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    before: NDArray[np.int64] = np.searchsorted(ordered, until)
    result: Floats = before * until - sums[before]
    return result


def in_words(busy: Activity, found: Tasks, end: float) -> str:
    shares = {kind: busy.share(kind) for kind in KINDS}
    waiting = max(0.0, 1.0 - sum(shares.values()))
    wrong = sum(outcome in TROUBLE for outcome in found.outcome)
    real = sum(outcome not in NO_WORK for outcome in found.outcome)
    small = len({client for client, outcome in zip(found.client, found.outcome, strict=True) if outcome == "unfit"})
    unfit = f"; {plural(small, 'client')} too small to train" if small else ""
    at_work = sum(busy.at[kind] for kind in KINDS)
    return (
        f"{plural(busy.clients, 'client')} over {quantity(end, 's')} of virtual time: "
        f"{percent(shares['training'], 0)} of it training, {percent(shares['receiving'], 0)} receiving, "
        f"{percent(shares['sending'], 0)} sending, {percent(waiting, 0)} idle; at most "
        f"{float(np.max(at_work)):,.0f} busy at once. {plural(real, 'task')}, {wrong:,} of them lost, refused or "
        f"late{unfit}."
    )
