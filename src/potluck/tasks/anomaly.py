"""One-class anomaly detection: a network learns to rebuild normal samples, and what it rebuilds badly is anomalous."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from potluck.metrics import AUPRC, AUROC, Metric
from potluck.tasks.task import Figures, Floats, Loss, Task, spread_out

LOWEST, HIGHEST, BINS = -6.0, 6.0, 2400  # of log10 of the score: 200 bins for a factor of ten


@dataclass(frozen=True)
class Anomaly(Task):
    """Train on normal rows only; the score of a sample is its mean squared reconstruction error.

    y is 0 for a normal row and 1 for an anomalous one, and only the metrics read it. Scores are counted in narrow bins,
    because counts add up over clients; two scores in one bin count as equal.
    """

    size: int = 1  # numbers of a sample

    kind: ClassVar[str] = "anomaly"
    offers: ClassVar[tuple[Metric, ...]] = (AUROC, AUPRC)
    loss: ClassVar[Loss] = "rebuild"

    @property
    def outputs(self) -> int:
        return self.size

    def answer(self, out: Tensor, x: Tensor) -> Tensor:
        """What the network failed to rebuild."""
        return out - x.flatten(1)

    def losses(self, out: Tensor, y: Tensor) -> Tensor:
        """Huber's of what was not rebuilt, so that one odd row moves a network by a bounded step.

        It is the sum over the numbers of a sample: their mean would shrink a step by their count, and the learning
        rates of the other tasks would teach nothing.
        """
        return F.huber_loss(out, torch.zeros_like(out), reduction="none").sum(-1)

    def closeness(self, out: Tensor, y: Tensor) -> Tensor:
        return torch.exp(-self.losses(out, y) / self.size)

    def opinion(self, out: Tensor) -> Tensor:
        """How odd the network finds a sample, on a scale of factors of ten."""
        return spread_out(out.square().mean(-1, keepdim=True).clamp_min(1e-12).log10())

    def tally(self, out: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Normal and anomalous rows by the bin of their score."""
        odd = out.double().square().mean(-1).clamp_min(1e-30).nan_to_num(10**HIGHEST, 10**HIGHEST)
        place = (odd.log10() - LOWEST) / (HIGHEST - LOWEST) * BINS
        at = place.floor().clamp(0, BINS - 1).long() + BINS * y.long()
        return torch.zeros(len(y), 2 * BINS).scatter_add(1, at, weight).double()

    def figures(self, sums: Floats) -> Figures:
        normal, odd = sums[:, :BINS], sums[:, BINS:]
        below = np.cumsum(normal, 1) - normal
        pairs = normal.sum(1) * odd.sum(1)
        area = (odd * (below + normal / 2)).sum(1)
        found, said = np.cumsum(odd[:, ::-1], 1), np.cumsum((odd + normal)[:, ::-1], 1)
        precision = np.divide(found, said, out=np.zeros_like(found), where=said > 0)
        steps = (odd[:, ::-1] * precision).sum(1)
        # A client without anomalous (or without normal) test rows has no ranking: chance stands for it.
        return {
            AUROC.name: np.where(pairs > 0, area / np.maximum(pairs, 1.0), 0.5),
            AUPRC.name: np.where(odd.sum(1) > 0, steps / np.maximum(odd.sum(1), 1.0), 0.0),
        }

    def scores(self, out: Floats) -> Floats:
        return np.asarray(np.square(out).mean(-1, keepdims=True))

    def predicted(self, scores: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.generic]:
        return np.asarray(scores[..., 0])
