"""Samples for the checks, and a model with a hidden layer, batch norm and dropout; both are as small as they can be."""

from __future__ import annotations

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from potluck.data.dataset import Dataset
from potluck.keys import rng
from potluck.models import BatchNorm, Dropout

CLIENTS, FEATURES, CLASSES = 5, 4, 3
ROWS = 40  # of each client, before the server's, the test rows and `partition.sizes` are taken off
SIZES = (12, 7, 20, 15, 9)  # training rows: unlike, so that stacks are padded and last batches are short


def few() -> Dataset:
    """Five clients, four features, three classes: samples around a centre per class, moved a little for each client."""
    draw = rng("potluck.testing")
    centres = draw.normal(size=(CLASSES, FEATURES))
    y = draw.integers(0, CLASSES, CLIENTS * ROWS)
    subject = np.repeat(np.arange(CLIENTS), ROWS)
    own = 0.3 * draw.normal(size=(CLIENTS, FEATURES))
    x = centres[y] + own[subject] + 0.3 * draw.normal(size=(len(y), FEATURES))
    names = tuple(f"class {c}" for c in range(CLASSES))
    return Dataset("few", x.astype(np.float32), y.astype(np.int64), CLASSES, names, subject=subject.astype(np.int64))


class Deep(nn.Module):
    """Linear, batch norm, ReLU, dropout, linear.

    The first layer has no bias: batch norm would take it out again, so its gradient is rounding alone, and Adam would
    make whole steps of that.
    """

    def __init__(self, shape: tuple[int, ...], classes: int, hidden: int = 6) -> None:
        super().__init__()
        self.hidden = nn.Linear(shape[0], hidden, bias=False)
        self.norm = BatchNorm(hidden)
        self.drop = Dropout(0.2)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.drop(F.relu(self.norm(self.hidden(x)))))
        return out
