"""How well a cluster's model fits one client, as the client tells it: one number (EchoPFL section 4.3.1)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.fleet import Data, Params
from potluck.models import Model


@dataclass(frozen=True)
class Tally:
    """Sums over samples, so that a client may count part of its data in each leg."""

    predicted: Tensor  # samples predicted as each class
    labelled: Tensor  # samples labelled as each class
    soft: Tensor  # summed class probabilities


def nothing(classes: int) -> Tally:
    return Tally(torch.zeros(classes), torch.zeros(classes), torch.zeros(classes))


def counted(tally: Tally, model: Model, weights: Params, data: Data) -> Tally:
    """The tally with these samples in it, as the model sees them."""
    logits = model.logits(weights, data.x, t=data.t, length=data.length)
    classes = torch.arange(logits.shape[-1])
    counts = data.weight.unsqueeze(-1)

    def one_hot(label: Tensor) -> Tensor:
        return (label.unsqueeze(-1) == classes).to(counts.dtype)

    return Tally(
        tally.predicted + (one_hot(logits.argmax(-1)) * counts).sum(0),
        tally.labelled + (one_hot(data.y) * counts).sum(0),
        tally.soft + (logits.softmax(-1) * counts).sum(0),
    )


def feedback(tally: Tally) -> Tensor:
    """g of eq. 3: chi-squared of predicted against true labels, times the variance of the mean softmax output.

    The paper divides by E_j, which is 0 for a class the client does not have: 1/n is added, one sample's share.
    """
    n = tally.labelled.sum().clamp_min(1.0)
    predicted, labelled, soft = tally.predicted / n, tally.labelled / n, tally.soft / n
    chi = ((predicted - labelled) ** 2 / (labelled + 1.0 / n)).sum()
    return chi * soft.var(unbiased=False)
