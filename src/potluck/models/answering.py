"""A model that answers by more than one pass through one network: a mixture of models, a memory of samples.

Such a model is still a set of named tensors, so it is kept, sent and saved like any other. Only the way from the
tensors to logits is another one: `ANSWER` of its method's file. Whoever needs answers calls `logits`, as for any model.
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from potluck.models.model import Convolutions, Layer, Model, Params


class Answer(Protocol):
    """The logits (n x classes) of a method's model; `model` is the network, `weights` what the method made for it."""

    def __call__(
        self, model: Model, weights: Params, x: Tensor, *, t: Tensor | None = None, length: Tensor | None = None
    ) -> Tensor: ...


class Answering(Model):
    """The network `base`, whose `logits` are those of `answer`; `by` names the method that has it."""

    def __init__(self, base: Model, answer: Answer, by: str) -> None:
        self.__dict__.update(base.__dict__)
        self.base, self.answer, self.by = base, answer, by

    def __reduce__(self) -> tuple[Any, ...]:
        return Answering, (self.base, self.answer, self.by)

    def logits(self, weights: Params, x: Tensor, *, t: Tensor | None = None, length: Tensor | None = None) -> Tensor:
        return self.answer(self.base, weights, x, t=t, length=length)

    def chain(self) -> list[Layer] | None:
        return None  # one pass through the layers is not the way to these logits

    def convolved(self) -> Convolutions | None:
        return None
