"""Simulated faults: each task draws at most one from its own key."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from potluck.wire.codec import walk

SPOILING = ("corrupt", "nan", "oversize")


@dataclass(frozen=True)
class Faults:
    """The probability of each fault, per task."""

    dropout: float = 0.0  # the client goes away while it works
    late: float = 0.0  # the task takes `late_factor` times as long
    duplicate: float = 0.0  # the update arrives a second time
    corrupt: float = 0.0  # tensors of wrong shapes
    nan: float = 0.0  # numbers that are not finite
    oversize: float = 0.0  # more bytes than the limit
    late_factor: float = 5.0

    KINDS = ("dropout", "late", "duplicate", "corrupt", "nan", "oversize")

    @cached_property
    def any(self) -> bool:
        """Whether any can happen."""
        return any(getattr(self, kind) for kind in self.KINDS)

    def draw(self, u: float) -> str | None:
        """The fault for a uniform draw from [0, 1), or None."""
        if not self.any:
            return None
        for kind in self.KINDS:
            share = float(getattr(self, kind))
            if u < share:
                return kind
            u -= share
        return None


def spoil(update: Any, fault: str | None, limit: int) -> Any:
    """The update as it arrives, after the fault."""
    if fault == "nan":
        return walk(update, lambda t: torch.full_like(t, torch.nan) if t.is_floating_point() else t)
    if fault == "corrupt":
        return walk(update, _torn)
    if fault == "oversize":
        return walk(update, lambda t: _swell(t, limit))
    return update


def _torn(tensor: Tensor) -> Tensor:
    """Half of a tensor, with another number of axes: wrong also where an axis may have any length."""
    half = tensor.reshape(-1)[: tensor.numel() // 2]
    return half if tensor.dim() > 1 else half[None]


def _swell(tensor: Tensor, limit: int) -> Tensor:
    """A tensor that claims more bytes than the limit, without using them."""
    return tensor.new_zeros(1).expand(limit // tensor.element_size() + 1)  # also of an empty one
