"""How good everyone's model is on her own validation rows: what a server may choose settings by, never test rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.fleet import Done, Fleet, Local, Params


@dataclass(frozen=True)
class Check:
    """Server to client: how good is your model on your validation rows?"""


@dataclass(frozen=True)
class Checked:
    hits: Tensor
    count: Tensor


def checked(weights: Params, local: Local) -> Done:
    """The answer to a `Check` for a client whose model has these weights."""
    rows = local.valid
    assert rows is not None  # the method's `check` has refused the run otherwise
    logits = local.model.logits(weights, rows.x, t=rows.t, length=rows.length)
    hits = ((logits.argmax(-1) == rows.y).to(torch.float32) * rows.weight).sum()
    return Done(Checked(hits, rows.weight.sum()))


def score(fleet: Fleet) -> float:
    """The mean validation accuracy over the clients that have such rows and answered."""
    found = [arrival.update for arrival in fleet.gather({client: Check() for client in list(fleet.idle)})]
    # In double precision: candidates that are equally good must come out equal.
    shares = [float(one.hits) / float(one.count) for one in found if float(one.count) > 0]
    return math.fsum(shares) / len(shares) if shares else 0.0
