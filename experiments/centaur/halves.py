"""CIFAR-10 cut in two by classes: an encoder is pre-trained on one half, and clients learn the other.

potluck pretrain five.safetensors --data experiments.centaur.halves:first --model compact
potluck run experiments/centaur/images.toml
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from potluck.data.load import load

CLASSES = 5  # of ten, in each half
TESTED = 1000  # rows: reading all would take longer than training


@cache
def _cut(first: bool) -> dict[str, Any]:
    whole = load("cifar10")
    x, y, split = np.asarray(whole.x), np.asarray(whole.y), np.asarray(whole.split)
    mine = (y < CLASSES) == first
    test = np.flatnonzero(mine & (split == 1))[:TESTED]
    rows = np.concatenate([np.flatnonzero(mine & (split == 0)), test])
    return {"x": x[rows], "y": y[rows] % CLASSES, "split": split[rows]}


def first() -> dict[str, Any]:
    """Aeroplane, car, bird, cat, deer: for the encoder."""
    return _cut(True)


def second() -> dict[str, Any]:
    """Dog, frog, horse, ship, lorry: for the clients."""
    return _cut(False)
