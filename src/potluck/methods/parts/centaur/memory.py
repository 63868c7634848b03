"""Choosing samples before the encoder runs: by the losses of earlier rounds, so that only what is kept is encoded.

A device that asks for the loss of every sample must run the encoder over all of them, and that pass costs more than
training the classifier does. With `selection.encode = "kept"` it remembers one loss for each sample instead: the one it
met when it last trained on it. A sample that it handed over counts as not known, since the access point has changed the
model with it. By `by = "random"` it needs no losses at all.
"""

from __future__ import annotations

import torch
from torch import Tensor

from potluck import keys
from potluck.methods.parts.centaur.handover import widened
from potluck.methods.parts.centaur.partial import Fitted
from potluck.methods.parts.selection import Chosen, Rule, remembered_ranks, select


def chosen_before(rule: Rule, known: Tensor, rows: Tensor, capacity: int, weight: Tensor, key: Tensor) -> Chosen | None:
    """The choice of a whole round among the gathered `rows`; None where losses of the present model decide."""
    if not rule.remembers:
        return None
    ranks = remembered_ranks(widened(known, capacity)[rows], weight, keys.fold(key, "unknown"))
    return select(rule, ranks, weight, keys.fold(key, "select", 0), lots=key)


def known_after(rule: Rule, known: Tensor, rows: Tensor, capacity: int, fitted: Fitted) -> Tensor:
    """The losses that a device knows after a round; negative: not known."""
    if not rule.remembers:
        return known
    before = widened(known, capacity)
    now = torch.where(fitted.visited > 0, fitted.losses, before[rows])
    return before.scatter(0, rows, torch.where(fitted.send > 0, -1.0, now))
