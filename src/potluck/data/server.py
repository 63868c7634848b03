"""The server's own rows, taken from the set before the clients get theirs, whole recordings at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from potluck.data.dataset import Array, Dataset, Ints
from potluck.data.split import TEST, at_random, ids, sides
from potluck.data.standardise import Floats, Scaler
from potluck.errors import BadInput, Code
from potluck.keys import rng


def divide(dataset: Dataset, share: float, seed: int) -> tuple[Dataset, Dataset]:
    """Return the server's part and the rest: classes in proportion, no recording in both."""
    everyone = np.zeros(len(dataset), dtype=np.int64)
    draw = rng(seed, "server")
    if dataset.group is None:
        chosen = at_random(dataset.y, everyone, share, draw) == TEST
    else:
        chosen = sides("group", dataset.y, everyone, ids(dataset.group), share, 0, draw) == TEST
    if not chosen.any() or chosen.all():
        raise BadInput(
            Code.SERVER_ROWS,
            f"server.share: must leave rows to the server and to the clients, got {share:g} of {len(dataset)} rows.",
        )
    return subset(dataset, np.flatnonzero(chosen)), subset(dataset, np.flatnonzero(~chosen))


def subset(dataset: Dataset, rows: Ints) -> Dataset:
    columns = ("x", "y", "subject", "t", "length", "split", "group", "target", "odd")
    kept: Any = {name: None if getattr(dataset, name) is None else getattr(dataset, name)[rows] for name in columns}
    return replace(dataset, **kept)


def whole(dataset: Dataset, standardise: str) -> tuple[Floats, Array, Floats | None, Ints | None]:
    """Return all rows as x, y, t, length in the layout of a model, standardised by their own statistics."""
    rows = np.arange(len(dataset))
    scaler = Scaler(dataset, standardise, lambda _: rows, lambda: rows)
    x = scaler.samples(np.zeros(1, dtype=np.int64), rows[None], np.array([len(rows)]), True)[0]
    t = None if dataset.t is None else np.asarray(dataset.t, dtype=np.float32)
    return x, dataset.learned, t, None if dataset.length is None else np.asarray(dataset.length, np.int64)
