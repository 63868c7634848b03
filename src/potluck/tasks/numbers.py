"""Regression and forecasting: a sample has one or more numbers to predict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from potluck.errors import Code, must_be
from potluck.metrics import MAE, RMSE, Metric
from potluck.tasks.task import Figures, Floats, Loss, Task, spread_out

DIVERGED = 1e18  # the error of a model that gives no finite number


@dataclass(frozen=True)
class Regression(Task):
    """Numbers. A network predicts (y - centre) / spread, so that its outputs are near 0 and of size 1.

    The loss is Huber's in these units: half of the squared error up to one spread, and linear beyond. So a step is
    bounded as that of a classifier is, and one recipe suits both. Metrics and predictions are in the data's units.
    """

    centre: tuple[float, ...] = (0.0,)
    spread: tuple[float, ...] = (1.0,)

    kind: ClassVar[str] = "regression"
    offers: ClassVar[tuple[Metric, ...]] = (RMSE, MAE)
    loss: ClassVar[Loss] = "huber"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.centre or len(self.centre) != len(self.spread):
            raise must_be(Code.TASK, "task.centre", f"{len(self.spread)} numbers, as many as task.spread", self.centre)
        if not all(np.isfinite(self.centre)) or not all(0 < one < np.inf for one in self.spread):
            raise must_be(Code.TASK, "task.spread", "above 0 and finite", self.spread)

    @property
    def outputs(self) -> int:
        return len(self.centre)

    def _scale(self, like: Tensor) -> tuple[Tensor, Tensor]:
        return torch.tensor(self.centre, dtype=like.dtype), torch.tensor(self.spread, dtype=like.dtype)

    @property
    def fused(self) -> bool:
        return True

    def blank(self, samples: int) -> Tensor:
        return torch.zeros(samples, self.outputs) if self.outputs > 1 else torch.zeros(samples)

    def standardised(self, y: Tensor) -> Tensor:
        centre, spread = self._scale(y)
        return (y.reshape(*y.shape[:1], self.outputs) - centre) / spread

    def losses(self, out: Tensor, y: Tensor) -> Tensor:
        return F.huber_loss(out, self.standardised(y), reduction="none").mean(-1)

    def opinion(self, out: Tensor) -> Tensor:
        return spread_out(out)

    def tally(self, out: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Squared error by output, absolute error by output, rows."""
        centre, spread = self._scale(out)
        error = (out.double() * spread + centre - y.reshape(out.shape)).nan_to_num(DIVERGED, DIVERGED, -DIVERGED)
        away = error.clamp(-DIVERGED, DIVERGED) * weight.unsqueeze(-1)
        return torch.cat([away.square().sum(1), away.abs().sum(1), weight.double().sum(1, True)], 1)

    def figures(self, sums: Floats) -> Figures:
        """RMSE is the root of the mean over rows and outputs; a client's rows count together."""
        wide, rows = self.outputs, np.maximum(sums[:, -1], 1.0)
        return {
            RMSE.name: np.sqrt(sums[:, :wide].mean(1) / rows),
            MAE.name: sums[:, wide : 2 * wide].mean(1) / rows,
        }

    def scores(self, out: Floats) -> Floats:
        return np.asarray(out * np.asarray(self.spread) + np.asarray(self.centre))

    def predicted(self, scores: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.generic]:
        return np.asarray(scores[..., 0] if self.outputs == 1 else scores)


@dataclass(frozen=True)
class Forecasting(Regression):
    """The values of one channel in the next steps of a series, one output for each step ahead."""

    kind: ClassVar[str] = "forecasting"
