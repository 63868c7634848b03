"""The 30 people of UCI-HAR at 10 Hz, made unlike in one way at a time.

    potluck compare --experiment experiments/compose/unlike.toml --data experiments.compose.unlike:worn --seeds 3

alike       as they are
worn        half of them wear the phone turned by a quarter: the axes x and y change places
named       half of them call every activity by the next one's name
own_names   everybody has names of their own: a permutation each
few_...     the same with 30 windows of each person
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from potluck.data.dataset import Dataset
from potluck.data.load import load
from potluck.keys import rng

FEW = 30  # windows of a person
Change = Callable[[Dataset, int, np.ndarray], None]  # (data, the place of a person, its rows), in place


def alike() -> Dataset:
    return _changed(lambda data, person, rows: None)


def worn() -> Dataset:
    return _changed(_turned)


def named() -> Dataset:
    return _changed(_renamed)


def own_names() -> Dataset:
    return _changed(_permuted)


def few_alike() -> Dataset:
    return _few(alike())


def few_worn() -> Dataset:
    return _few(worn())


def few_named() -> Dataset:
    return _few(named())


def few_own_names() -> Dataset:
    return _few(own_names())


def _changed(change: Change) -> Dataset:
    data = load("uci_har_10hz")
    assert data.subject is not None
    data = replace(data, x=np.array(data.x), y=np.array(data.y))
    for person, subject in enumerate(np.unique(data.subject)):
        change(data, person, np.flatnonzero(data.subject == subject))
    return data


def _turned(data: Dataset, person: int, rows: np.ndarray) -> None:
    """Each three channels are x, y and z of one sensor."""
    if person % 2:
        for first in range(0, data.x.shape[2], 3):
            x, y = data.x[rows, :, first].copy(), data.x[rows, :, first + 1].copy()
            data.x[rows, :, first], data.x[rows, :, first + 1] = y, -x


def _renamed(data: Dataset, person: int, rows: np.ndarray) -> None:
    if person % 2:
        data.y[rows] = (data.y[rows] + 1) % data.classes


def _permuted(data: Dataset, person: int, rows: np.ndarray) -> None:
    data.y[rows] = rng("names", person).permutation(data.classes)[data.y[rows]]


def _few(data: Dataset) -> Dataset:
    """Windows spread over each person's recordings; those beside each other overlap."""
    assert data.subject is not None
    kept = [
        rows[np.linspace(0, len(rows) - 1, FEW).astype(int)]
        for rows in (np.flatnonzero(data.subject == one) for one in np.unique(data.subject))
    ]
    rows = np.sort(np.concatenate(kept))
    parts = {
        name: getattr(data, name)[rows]
        for name in ("x", "y", "subject", "group", "split", "t", "length")
        if getattr(data, name) is not None
    }
    return replace(data, **parts)
