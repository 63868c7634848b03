"""Training where most rows have no label: pseudo-labels, or answers that stay the same under noise.

A row without a label has y = -1. Every step trains on a mini-batch of all rows as usual, and beside it on as many
labelled rows, which a client goes through again and again. The loss is that of FixMatch (Sohn et al., NeurIPS 2020):
the mean over the labelled rows, plus `push` times the mean over the others (eq. 4). A row without a label counts only
if the model is sure of its class, and that class is its label. `pseudo` trains on the row itself (Lee, ICML workshop
2013), `consistency` on a noisy copy of it, `ignore` on labelled rows alone.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from potluck import keys
from potluck._batches import revisited
from potluck.fleet import Data, Params
from potluck.models import Model
from potluck.tasks import Classification


def beside(data: Data, rows: Tensor, counts: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Put labelled rows before those of every mini-batch (steps, batch), as many as a batch has.

    A step of padding gets none. Steps are numbered by those before them that had samples, so that a client in a stack
    takes the same labelled rows as alone.
    """
    known = (data.y >= 0).to(data.weight.dtype) * data.weight
    order = keys.permutation(keys.fold(key, "labelled"), len(known), known)
    wide = rows.shape[1]
    live = (counts.sum(1, keepdim=True) > 0).to(counts.dtype)
    number = (live.cumsum(0) - 1).clamp_min(0).to(torch.int64)
    many = known.sum().clamp_min(1.0).to(torch.int64)
    place = (number * wide + torch.arange(wide)) % many
    more = live * (known.sum() > 0) * torch.ones(wide)
    revisited(more, 1)
    return torch.cat([order[place], rows], 1), torch.cat([more, counts], 1)


def loss(model: Model, task: Classification, weights: Params, data: Data, key: Tensor) -> tuple[Tensor, Params]:
    """The objective of a mini-batch, and the buffers that it changed."""
    extra = {"t": data.t, "length": data.length}
    out, buffers = model.train_logits(weights, data.x, weight=data.weight, key=key, **extra)
    known = (data.y >= 0).to(data.weight.dtype) * data.weight
    each = F.cross_entropy(out, data.y.clamp_min(0), reduction="none")
    learned = (each * known).sum() / known.sum().clamp_min(1.0)
    if task.unlabelled == "ignore":
        return learned, buffers
    sure, label = task.guessed(out)
    if task.unlabelled == "consistency":
        noisy = data.x + task.noise * keys.normal(keys.fold(key, "noise"), data.x.shape)
        out, _ = model.train_logits(weights, noisy, weight=data.weight, key=keys.fold(key, "again"), **extra)
    guessed = F.cross_entropy(out, label, reduction="none") * sure
    others = data.weight - known
    return learned + task.push * (guessed * others).sum() / others.sum().clamp_min(1.0), buffers
