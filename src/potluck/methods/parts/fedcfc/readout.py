"""Loss, activity and accuracy of a CFC on some rows, computed at the precision in which its weights are stored."""

from __future__ import annotations

import torch
from torch import Tensor

from potluck.fleet import Data, Local, Params
from potluck.methods.parts.fedcfc.bind import Values
from potluck.models import Model
from potluck.models.cfc import logits_and_activity


def loss_and_activity(model: Model, batch: Data, half: bool) -> Values:
    """l and Υ of a mini-batch as functions of the weights; `half`: the weights are float16."""
    x = batch.x.half() if half else batch.x

    def values(weights: Params) -> tuple[Tensor, Tensor]:
        logits, activity = logits_and_activity(
            model, weights, x, weight=batch.weight.to(x.dtype), t=batch.t, length=batch.length
        )
        losses = model.losses(logits.float(), batch.y)
        return (losses * batch.weight).sum() / batch.weight.sum().clamp_min(1.0), activity.float()

    return values


def accuracy(local: Local, weights: Params, half: bool) -> Tensor:
    """On the client's validation rows; -1 if it has none."""
    rows = local.valid
    if rows is None:
        return torch.tensor(-1.0)
    x = rows.x.half() if half else rows.x
    logits = local.model.logits(weights, x, t=rows.t, length=rows.length)
    right = local.model.task.closeness(logits.float(), rows.y)
    share: Tensor = (right * rows.weight).sum() / rows.weight.sum().clamp_min(1.0)
    return share
