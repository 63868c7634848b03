"""Classification, ordinal classes and several labels at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from potluck.errors import Code, must_be, unknown
from potluck.metrics import ACCURACY, BALANCED, EXACT, KAPPA, MACRO_F1, MAE, MICRO_F1, Metric
from potluck.tasks.task import Figures, Floats, Loss, Task, ratio

UNLABELLED = ("ignore", "pseudo", "consistency")


def counts(said: Tensor, y: Tensor, weight: Tensor, classes: int) -> Tensor:
    """Right answers, answers and rows by class: (K, 3 classes)."""
    empty = torch.zeros(len(y), classes)
    right = (said == y).float() * weight
    parts = [empty.scatter_add(1, y, right), empty.scatter_add(1, said, weight), empty.scatter_add(1, y, weight)]
    return torch.cat(parts, 1).double().round()


def by_class(sums: Floats, classes: int) -> Figures:
    """Accuracy, balanced accuracy and macro F1 from such counts; classes without rows do not count."""
    right, said, rows = sums[:, :classes], sums[:, classes : 2 * classes], sums[:, 2 * classes : 3 * classes]
    held = rows > 0
    many = np.maximum(held.sum(1), 1)
    recall = np.where(held, ratio(right, rows), 0.0)
    f1 = np.where(held, ratio(2 * right, said + rows), 0.0)
    return {
        ACCURACY.name: right.sum(1) / np.maximum(rows.sum(1), 1),
        BALANCED.name: recall.sum(1) / many,
        MACRO_F1.name: f1.sum(1) / many,
    }


def yes_or_no(out: Tensor) -> Tensor:
    """The log-probabilities of yes and no of each output: (..., O) -> (..., 2 O)."""
    return torch.cat([F.logsigmoid(out), F.logsigmoid(-out)], -1)


@dataclass(frozen=True)
class Classification(Task):
    """One class of several. `weights`, where given, multiply the loss of each class: rare ones then count more.

    With `unlabelled` some rows have no label, and y is -1 there (`potluck._few_labels`).
    """

    classes: int = 2
    weights: tuple[float, ...] = ()
    unlabelled: str = ""  # how rows without a label are trained on: ignore, pseudo or consistency; "": all have one
    threshold: float = 0.95  # the probability from which a model's own answer counts as a label
    push: float = 1.0  # what the loss of rows without a label counts
    noise: float = 0.5  # consistency: standard deviation of what is added to a sample

    kind: ClassVar[str] = "classification"
    offers: ClassVar[tuple[Metric, ...]] = (ACCURACY, BALANCED, MACRO_F1)
    has_classes: ClassVar[bool] = True
    loss: ClassVar[Loss] = "cross_entropy"
    labelled: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights and (len(self.weights) != self.classes or min(self.weights) < 0):
            raise must_be(Code.TASK, "task.weights", f"{self.classes} numbers, none below 0", self.weights)
        if self.unlabelled not in ("", *UNLABELLED):
            raise unknown(Code.TASK, "task.unlabelled", self.unlabelled, UNLABELLED)
        if self.unlabelled and self.weights:
            raise must_be(Code.TASK, "task.balance", "false where rows have no label", True)

    @property
    def outputs(self) -> int:
        return self.classes

    @property
    def fused(self) -> bool:
        return not self.weights and not self.unlabelled

    def guessed(self, out: Tensor) -> tuple[Tensor, Tensor]:
        """Whether the model is sure of each sample's class (1 or 0), and that class."""
        sure, label = out.detach().softmax(-1).max(-1)
        return (sure >= self.threshold).to(out.dtype), label

    def losses(self, out: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy. A row without a label has the loss of its pseudo-label, or none."""
        if self.unlabelled:
            sure, label = self.guessed(out)
            counts = torch.where(y >= 0, 1.0, 0.0 if self.unlabelled == "ignore" else self.push * sure)
            return F.cross_entropy(out, torch.where(y >= 0, y, label), reduction="none") * counts
        each = F.cross_entropy(out, y, reduction="none")
        return each * torch.tensor(self.weights, dtype=out.dtype)[y] if self.weights else each

    def closeness(self, out: Tensor, y: Tensor) -> Tensor:
        return (out.argmax(-1) == y).to(torch.float32)

    def opinion(self, out: Tensor) -> Tensor:
        return out

    def slopes(self, out: Tensor, y: Tensor) -> Tensor:
        """p - y of the softmax p; with weights, that of the weighted loss; 0 for a row without a label."""
        if self.unlabelled:
            known = (y >= 0).to(out.dtype).unsqueeze(-1)
            return (torch.softmax(out, -1) - F.one_hot(y.clamp_min(0), out.shape[-1]).to(out.dtype)) * known
        plain = torch.softmax(out, -1) - F.one_hot(y, out.shape[-1]).to(out.dtype)
        return plain * torch.tensor(self.weights, dtype=out.dtype)[y].unsqueeze(-1) if self.weights else plain

    def tally(self, out: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        return counts(out.argmax(-1), y, weight, self.classes)

    def figures(self, sums: Floats) -> Figures:
        return by_class(sums, self.classes)

    def scores(self, out: Floats) -> Floats:
        return np.asarray(torch.from_numpy(np.ascontiguousarray(out)).softmax(-1).numpy())


@dataclass(frozen=True)
class Ordinal(Task):
    """Classes with an order: output k says whether the level is above k (Cheng et al., IJCNN 2008).

    The loss is the mean of the binary cross-entropies over the levels. The answer is the number of outputs above 0.
    """

    classes: int = 2

    kind: ClassVar[str] = "ordinal"
    offers: ClassVar[tuple[Metric, ...]] = (MAE, ACCURACY, BALANCED, MACRO_F1, KAPPA)
    loss: ClassVar[Loss] = "binary"
    labelled: ClassVar[bool] = True

    @property
    def outputs(self) -> int:
        return self.classes - 1

    def losses(self, out: Tensor, y: Tensor) -> Tensor:
        above = (y.unsqueeze(-1) > torch.arange(self.outputs)).to(out.dtype)
        return F.binary_cross_entropy_with_logits(out, above, reduction="none").mean(-1)

    def opinion(self, out: Tensor) -> Tensor:
        return yes_or_no(out)

    def tally(self, out: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """The counts by class, then the summed distance and the summed squared distance in levels."""
        said = (out > 0).sum(-1)
        away = (said - y).double() * weight
        sums = torch.stack([away.abs().sum(1), away.square().sum(1)], 1)
        return torch.cat([counts(said, y, weight, self.classes), sums], 1)

    def figures(self, sums: Floats) -> Figures:
        levels = np.arange(self.classes)
        said, rows = sums[:, self.classes : 2 * self.classes], sums[:, 2 * self.classes : 3 * self.classes]
        total = np.maximum(rows.sum(1), 1.0)
        apart = (levels[:, None] - levels[None, :]) ** 2
        by_chance = np.einsum("ki,ij,kj->k", said, apart, rows) / total  # what independent answers would be away
        return {
            MAE.name: sums[:, -2] / total,
            **by_class(sums, self.classes),
            KAPPA.name: 1.0 - np.where(by_chance > 0, ratio(sums[:, -1], by_chance), 0.0),
        }

    def scores(self, out: Floats) -> Floats:
        """The probability to be above each level but the last."""
        return np.asarray(1.0 / (1.0 + np.exp(-np.asarray(out, dtype=np.float64))))

    def predicted(self, scores: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.generic]:
        return np.asarray((scores > 0.5).sum(-1))


@dataclass(frozen=True)
class MultiLabel(Task):
    """Any of several labels at once: an output for each label, which holds where the output is above 0."""

    labels: int = 2

    kind: ClassVar[str] = "multilabel"
    offers: ClassVar[tuple[Metric, ...]] = (MACRO_F1, MICRO_F1, EXACT)
    loss: ClassVar[Loss] = "binary"

    @property
    def outputs(self) -> int:
        return self.labels

    def blank(self, samples: int) -> Tensor:
        return torch.zeros(samples, self.labels)

    def losses(self, out: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(out, y.to(out.dtype), reduction="none").mean(-1)

    def opinion(self, out: Tensor) -> Tensor:
        return yes_or_no(out)

    def tally(self, out: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """True positives, answers and rows by label; rows with all labels right, rows."""
        said, held, count = (out > 0).double(), y.double(), weight.double().unsqueeze(-1)
        whole = ((said == held).all(-1).double() * weight).sum(1, True)
        sums = [(one * count).sum(1) for one in (said * held, said, held)]
        return torch.cat([*sums, whole, weight.double().sum(1, True)], 1)

    def figures(self, sums: Floats) -> Figures:
        many = self.labels
        hit, said, held = sums[:, :many], sums[:, many : 2 * many], sums[:, 2 * many : 3 * many]
        counted = (said + held) > 0  # a label that nobody has and nobody names says nothing
        f1 = np.where(counted, ratio(2 * hit, said + held), 0.0)
        none = ~counted.any(1)
        whole = ratio(2 * hit.sum(1), (said + held).sum(1))
        return {
            MACRO_F1.name: np.where(none, 1.0, f1.sum(1) / np.maximum(counted.sum(1), 1)),
            MICRO_F1.name: np.where(none, 1.0, whole),
            EXACT.name: sums[:, -2] / np.maximum(sums[:, -1], 1.0),
        }

    def scores(self, out: Floats) -> Floats:
        return np.asarray(1.0 / (1.0 + np.exp(-np.asarray(out, dtype=np.float64))))

    def predicted(self, scores: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.generic]:
        return np.asarray((scores > 0.5).astype(np.int64))
