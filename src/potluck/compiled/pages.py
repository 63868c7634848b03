"""New memory in pages of 2 MB, as NumPy asks for large arrays and PyTorch does not.

A round writes tens of megabytes of weights, and reads them once. With pages of 4 kB the processor looks up the place of
each, which takes a few hundredths of the round.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

LEAST = 4 << 20  # bytes
PAGE, ADVICE = 2 << 20, 14  # MADV_HUGEPAGE of Linux


def room(shape: Sequence[int]) -> Tensor:
    """A tensor of this shape, as `torch.empty` makes it."""
    value = torch.empty(tuple(shape))
    nbytes = value.numel() * value.element_size()
    advise = _advise() if nbytes >= LEAST else None
    if advise is not None:
        at = value.data_ptr()
        begin = -(-at // PAGE) * PAGE
        advise(begin, (at + nbytes) // PAGE * PAGE - begin, ADVICE)
    return value


@cache
def _advise() -> Callable[[int, int, int], int] | None:
    """`madvise` of the C library, where it is Linux's. That an advice is not followed does no harm."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        found = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):
        return None
    found.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return found
