"""Weighted sums of models by compiled kernels, and of models that are rows of stacks without taking these apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from potluck.compiled import kernels, ready, spread

Params = dict[str, Tensor]
WORTH = 500  # blocks to read; below, to wake another worker takes longer than it saves


class Rows(Sequence[Params]):
    """Models that are rows of stacks. `places` (K, 2) has the stack and the row of each, in the order of the models."""

    def __init__(
        self,
        stacks: Sequence[Params],
        places: NDArray[np.int64],
        sharing: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.stacks = stacks
        self.places = places
        self.sharing = sharing  # a block in which kernels divide their work among the run's workers

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, at: int) -> Params: ...
    @overload
    def __getitem__(self, at: slice) -> list[Params]: ...
    def __getitem__(self, at: int | slice) -> Params | list[Params]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        stack, row = self.places[at].tolist()
        return {name: value[row] for name, value in self.stacks[stack].items()}

    def addresses(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Where the tensors of these names are: a row for each name, and in it a number for each model."""
        known = np.array([[_rows(stack[name]) for name in names] for stack in self.stacks], np.int64)
        which, row = self.places.T
        begin, apart = known[which].transpose(2, 1, 0)
        found: NDArray[np.int64] = begin + apart * row
        return found

    def dense(self, name: str) -> bool:
        """Whether each row of these stacks is float32 in one piece."""
        return all(stack[name].dtype == torch.float32 and stack[name].is_contiguous() for stack in self.stacks)


def _rows(stack: Tensor) -> tuple[int, int]:
    """The address of a stack, and how many bytes its rows are apart."""
    return stack.data_ptr(), stack.stride(0) * stack.element_size()


def summed(models: Sequence[Params], share: Tensor) -> Params:
    """The sum of the models times their shares, of each tensor that kernels can add; the others are left out.

    Rows of a stack and separate tensors give the same bits: a resumed run must end as one that was never killed.
    """
    if not ready() or torch._C._functorch.peek_interpreter_stack() is not None:
        return {}
    first = models[0]
    names = [name for name, value in first.items() if value.numel() and _fits(models, name)]
    if not names:
        return {}
    given = np.ascontiguousarray(_addresses(models, names))
    out = {name: torch.empty(first[name].shape) for name in names}
    sizes = np.array([value.numel() for value in out.values()])
    at = np.array([value.data_ptr() for value in out.values()])
    kernel, block = kernels("merging").weighted, kernels("merging").BLOCK
    parts = share.float().contiguous().numpy()
    blocks = int((-(-sizes // block)).sum())
    large = blocks * len(models) > WORTH
    with models.sharing() if large and isinstance(models, Rows) else nullcontext():
        spread(blocks, lambda begin, end: kernel(begin, end, given, sizes, at, parts))
    return out


def _fits(models: Sequence[Params], name: str) -> bool:
    if isinstance(models, Rows):
        return models.dense(name)
    shape = models[0][name].shape
    return all(_plain(model[name]) and model[name].shape == shape for model in models)


def _plain(value: Any) -> bool:
    dense = type(value) is Tensor and value.dtype == torch.float32 and value.is_contiguous() and value.is_cpu
    return bool(dense and not value.requires_grad)


def _addresses(models: Sequence[Params], names: Sequence[str]) -> NDArray[np.int64]:
    if isinstance(models, Rows):
        return models.addresses(names)
    return np.array([[model[name].data_ptr() for model in models] for name in names], np.int64)
