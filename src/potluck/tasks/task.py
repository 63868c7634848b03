"""What every task of learning offers to the rest of Potluck."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.func import grad

from potluck.errors import Code, unknown
from potluck.metrics import METRICS, Metric

Floats = npt.NDArray[np.float64]
Loss = Literal["cross_entropy", "hinge", "huber", "binary", "rebuild"]  # the SVM's hinge is for classes only
Figures = dict[str, Floats]  # metric -> a value per client


@dataclass(frozen=True)
class Task:
    """The base of all tasks: a frozen value without tensors. N samples, O outputs, S sums."""

    metric: str = ""  # the metric that ranks models; "": the first of `offers`

    kind: ClassVar[str] = ""
    offers: ClassVar[tuple[Metric, ...]] = ()  # its metrics, the headline first
    has_classes: ClassVar[bool] = False  # whether a sample has one class and outputs are scores of classes
    loss: ClassVar[Loss]
    labelled: ClassVar[bool] = False  # whether y holds class numbers, so that rows can be counted by class

    def __post_init__(self) -> None:
        if self.metric and self.metric not in {one.name for one in self.offers}:
            raise unknown(Code.TASK, "task.metric", self.metric, [one.name for one in self.offers])

    @property
    def headline(self) -> Metric:
        return METRICS[self.metric] if self.metric else self.offers[0]

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """All metrics, the headline first."""
        return (self.headline, *(one for one in self.offers if one.name != self.headline.name))

    @property
    def outputs(self) -> int:
        """Numbers that a model gives for a sample."""
        raise NotImplementedError

    @property
    def fused(self) -> bool:
        """Whether dense networks train with this loss on the fast path (`potluck._fused`)."""
        return False

    def blank(self, samples: int) -> Tensor:
        """Labels of so many samples, all 0: for counting costs and memory."""
        return torch.zeros(samples, dtype=torch.int64)

    def standardised(self, y: Tensor) -> Tensor:
        """The labels in the units of the outputs."""
        return y

    def losses(self, out: Tensor, y: Tensor) -> Tensor:
        """The loss of each sample: out (N, O), y (N, ...) -> (N,)."""
        raise NotImplementedError

    def answer(self, out: Tensor, x: Tensor) -> Tensor:
        """What the network's last layer gave, as an output of this task; the residual of a reconstruction, say."""
        return out

    def closeness(self, out: Tensor, y: Tensor) -> Tensor:
        """How right each answer is, from 0 to 1: for methods that judge models by their share of right answers."""
        return torch.exp(-self.losses(out, y))

    def opinion(self, out: Tensor) -> Tensor:
        """Logits of a distribution over answers (N, A): for methods that compare answers by their divergence."""
        raise NotImplementedError

    def slopes(self, out: Tensor, y: Tensor) -> Tensor:
        """The derivative of each sample's loss in its outputs (N, O)."""
        slopes: Tensor = grad(lambda now: self.losses(now, y).sum())(out)
        return slopes

    def tally(self, out: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Sums over the rows of each client: out (K, N, O), y (K, N, ...), weight (K, N) -> (K, S)."""
        raise NotImplementedError

    def figures(self, sums: Floats) -> Figures:
        """The metrics of each client from its sums (K, S); nan where they say nothing."""
        raise NotImplementedError

    def scores(self, out: Floats) -> Floats:
        """Outputs (N, O) as people read them: probabilities of classes or labels, numbers in the data's units."""
        raise NotImplementedError

    def predicted(self, scores: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.generic]:
        """What a person gets for each sample, from its scores: a class number, a level, labels, a number."""
        return np.asarray(scores.argmax(-1))


def spread_out(values: Tensor) -> Tensor:
    """Each number as a normal distribution of spread 1 over a few points: (..., O) -> log-probabilities (..., O A)."""
    points = torch.linspace(-2.5, 2.5, 11, dtype=values.dtype)
    return (-(points - values.unsqueeze(-1)).square() / 2).log_softmax(-1).flatten(-2)


def ratio(up: Floats, down: Floats) -> Floats:
    """up / down, nan where there is nothing to divide by."""
    return np.asarray(np.divide(up, down, out=np.full(np.shape(up), np.nan), where=np.asarray(down) > 0))
