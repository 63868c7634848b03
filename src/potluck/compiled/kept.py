"""What kernels know of samples that come again.

The products of a client's samples with each other are those of the last round, and a fifth of what a task computes.
Whoever keeps a stack of samples says so with `keep`. What is known of it goes when the stack does.
"""

from __future__ import annotations

import weakref
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor


class _Kept:
    """A stack of samples (K, N, ...), and the products that kernels have computed for it."""

    def __init__(self, stack: Tensor) -> None:
        self.count, self.version = stack.numel(), stack._version
        self.grams: Tensor | None = None
        self.known: Any = np.zeros(0, np.int64)


_KEPT: dict[int, _Kept] = {}  # by address
_MAKING = Lock()


def keep(stack: Tensor) -> None:
    """These samples will be asked for again, and will not change."""
    at = stack.data_ptr()
    if stack.is_contiguous() and stack.numel() and at not in _KEPT:
        _KEPT[at] = _Kept(stack)
        weakref.finalize(stack, _KEPT.pop, at, None).atexit = False


def grams_of(samples: Tensor, wanted: bool) -> tuple[int, Any]:
    """The address of room for the products of samples (K, N, F), or 0, and for how many samples of each they are known.

    Products take as much memory as the samples, or less.
    """
    clients, rows, features = samples.shape
    kept = _KEPT.get(samples.data_ptr()) if wanted and rows <= features else None
    if kept is None or kept.count != samples.numel() or kept.version != samples._version:
        return 0, np.zeros(clients, np.int64)
    with _MAKING:
        if kept.grams is None:
            kept.known, kept.grams = np.zeros(clients, np.int64), torch.empty((clients, rows, rows))
    return kept.grams.data_ptr(), kept.known
