"""The features of a model: the input of its last layer, in training and in use."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from potluck.fleet import Data, Params
from potluck.models import Model
from potluck.models.layers import Pass
from potluck.models.split import Split


@dataclass(frozen=True)
class Features:
    split: Split

    @staticmethod
    def of(model: Model, data: Data) -> Features:
        """Raise BadInput for a model that cannot be cut before its last layer."""
        given = [name for name in ("t", "length") if getattr(data, name) is not None]
        return Features(model.split(model.layers()[-1], given))

    def plain(self, weights: Params, data: Data) -> Tensor:
        """The features of samples (n x F) in evaluation mode."""
        return self.split.encode(weights, data.x, **self._extra(data)).flatten(1)

    def plain_with_logits(self, weights: Params, data: Data) -> tuple[Tensor, Tensor]:
        """Features and logits of samples in evaluation mode."""
        found = self.split.encode(weights, data.x, **self._extra(data))
        return found.flatten(1), self.split.classify(weights, found)

    def train(self, weights: Params, data: Data, key: Tensor) -> tuple[Tensor, Tensor, Params]:
        """Features, logits and changed buffers in training mode."""
        training = Pass(data.weight, key)
        found = self.split.train_encode(weights, data.x, training, **self._extra(data))
        logits = self.split.classify(weights, found, training)
        return found.flatten(1), logits, training.changed

    def _extra(self, data: Data) -> Params:
        return {name: getattr(data, name) for name in sorted(self.split.given)}
