"""Hide the labels of most training rows, as if nobody had labelled them."""

from __future__ import annotations

import numpy as np

from potluck.data.federation import Federation
from potluck.data.split import TRAIN
from potluck.keys import rng


def hide_labels(federation: Federation, share: float, seed: int) -> None:
    """Keep the labels of this share of each client's training rows, of every class that it has, and at least one.

    Clients that draw rows from a common pool (`partition.samples`) share the labels, too.
    """
    data = federation.dataset
    if federation.spec.samples is None:
        parts = [federation.train_rows(i) for i in range(len(federation))]
        rows, owner = np.concatenate(parts), np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    else:
        rows = np.flatnonzero(federation.side == TRAIN)
        owner = np.zeros(len(rows), dtype=np.int64)
    known = data.y[rows] >= 0
    rows, owner = rows[known], owner[known]
    mixed = rng(seed, "labels").permutation(len(rows))
    cell = (owner * data.classes + data.y[rows])[mixed]
    order = np.argsort(cell, kind="stable")
    _, first, counts = np.unique(cell[order], return_index=True, return_counts=True)
    rank = np.arange(len(rows)) - np.repeat(first, counts)
    kept = rank < np.ceil(share * np.repeat(counts, counts) - 1e-9)
    hidden = np.zeros(len(data), dtype=bool)
    hidden[rows[mixed[order[~kept]]]] = True
    federation.unlabelled = hidden
    federation.notes = (
        *federation.notes,
        f"Labels: {int(kept.sum())} of {len(rows)} training rows keep theirs (task.labels = {share:g}).",
    )
