"""The losses and accuracies that clients report: on their training rows, and on their validation rows for tuning.

The server may choose settings by validation rows, never by test rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from potluck.fleet import Done, Fleet, Local, Params
from potluck.learn import row_losses
from potluck.methods.parts.cohort import ready


@dataclass(frozen=True)
class Check:
    """Server to client: evaluate your model on your validation rows."""


@dataclass(frozen=True)
class Checked:
    """Client to server: how many validation rows were right (`Task.closeness`), of how many."""

    hits: Tensor
    count: Tensor


def checked(task: Check, local: Local) -> Done:
    """The client's own model on its validation rows."""
    rows, weights = local.valid, local.mine.weights
    assert rows is not None  # the method's `check` raises BadInput before the run starts
    logits = local.model.logits(weights, rows.x, t=rows.t, length=rows.length)
    hits = (local.model.task.closeness(logits, rows.y) * rows.weight).sum()
    return Done(Checked(hits, rows.weight.sum()))


def mean_accuracy(fleet: Fleet) -> float:
    """The mean validation accuracy over the clients that have validation rows and answered."""
    found = [arrival.update for arrival in fleet.gather({client: Check() for client in ready(fleet)})]
    # In double precision: candidates that are equally good must come out equal.
    shares = [float(one.hits) / float(one.count) for one in found if float(one.count) > 0]
    return math.fsum(shares) / len(shares) if shares else 0.0


def training_loss(local: Local, weights: Params) -> Tensor:
    """The mean loss on the client's training samples, without the terms of the method."""
    data = local.data
    losses = row_losses(local.model, weights, data)
    mean: Tensor = (losses * data.weight).sum() / data.weight.sum().clamp_min(1.0)
    return mean
