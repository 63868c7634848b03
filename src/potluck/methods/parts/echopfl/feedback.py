"""How well a cluster's model fits one client: one number that the client computes (EchoPFL section 4.3.1)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from potluck._outputs import logits
from potluck.fleet import Data, Params
from potluck.learn import parts
from potluck.models import Model

FLOORS = {"errors": 0.1, "frequencies": 1e-3}  # feedback below which a model fits; 0.1: a third of each class is wrong


@dataclass(frozen=True)
class ClassCounts:
    """Sums over samples, so that a client may count part of its data in each leg."""

    predicted: Tensor  # samples predicted as each class
    labelled: Tensor  # samples labelled as each class
    soft: Tensor  # summed class probabilities
    right: Tensor  # samples of each class predicted as such


def nothing(classes: int) -> ClassCounts:
    return ClassCounts(*(torch.zeros(classes) for _ in range(4)))


def counted(so_far: ClassCounts, model: Model, weights: Params, data: Data) -> ClassCounts:
    """The counts with these samples added, as the model predicts them; so many at once that a device holds them."""
    for part in parts(data):
        so_far = _counted(so_far, model, weights, part)
    return so_far


def _counted(so_far: ClassCounts, model: Model, weights: Params, data: Data) -> ClassCounts:
    said = logits(model, weights, data)
    classes = torch.arange(said.shape[-1])
    counts = data.weight.unsqueeze(-1)
    if not model.task.has_classes:  # one kind of sample, which is right to some degree
        seen, right = data.weight.sum(), (model.task.closeness(said, data.y) * data.weight).sum()
        return replace(so_far, labelled=so_far.labelled + seen, right=so_far.right + right)

    def one_hot(label: Tensor) -> Tensor:
        return (label.unsqueeze(-1) == classes).to(counts.dtype)

    predicted, labelled = one_hot(said.argmax(-1)), one_hot(data.y)
    return ClassCounts(
        so_far.predicted + (predicted * counts).sum(0),
        so_far.labelled + (labelled * counts).sum(0),
        so_far.soft + (said.softmax(-1) * counts).sum(0),
        so_far.right + (predicted * labelled * counts).sum(0),
    )


def judged(so_far: ClassCounts, by: str) -> Tensor:
    """The feedback that a client sends: by the errors per class, or by the frequencies of classes as printed."""
    return errors(so_far) if by == "errors" else feedback(so_far)


def errors(so_far: ClassCounts) -> Tensor:
    """The mean over a client's classes of the squared share of wrong predictions.

    Eq. 3 compares how often each class is predicted and how often it is true. A client that gives all activities other
    names has the same frequencies, so eq. 3 calls a model perfect for it that is always wrong.
    """
    there = so_far.labelled > 0
    wrong = torch.where(there, 1.0 - so_far.right / so_far.labelled.clamp_min(1.0), 0.0)
    return wrong.square().sum() / there.sum().clamp_min(1)


def feedback(so_far: ClassCounts) -> Tensor:
    """g of eq. 3: chi-squared of predicted against true labels, times the variance of the mean softmax output.

    The paper divides by E_j, which is 0 for a class without samples. So 1/n is added, the share of one sample.
    """
    n = so_far.labelled.sum().clamp_min(1.0)
    predicted, labelled, soft = so_far.predicted / n, so_far.labelled / n, so_far.soft / n
    chi = ((predicted - labelled) ** 2 / (labelled + 1.0 / n)).sum()
    return chi * soft.var(unbiased=False)
