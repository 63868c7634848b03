"""Gaussian noise on what clients upload (ClusterFL section 9.1, for privacy): a setting of the wire, for any method.

Noise goes on whatever can give a client away: every floating-point tensor with an axis (weights, gradients, samples,
logits). Left alone are single numbers (how many examples, a loss), integers, and a model's buffers: a variance that
noise makes negative would be no variance. It is drawn from the task's own key, so a run can be repeated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from torch import Tensor

from potluck import keys
from potluck.fleet import Data


def blurred(update: Any, sigma: float, key: Tensor, still: Collection[str] = ()) -> Any:
    """The update with N(0, sigma²) added; fields and entries named in `still` stay as they are."""
    if isinstance(update, Tensor):
        if update.dim() == 0 or not update.is_floating_point():
            return update
        return update + sigma * keys.normal(key, update.shape).to(update.dtype)
    if isinstance(update, Data):  # samples; which rows count is no secret that noise could keep
        return dataclasses.replace(update, x=blurred(update.x, sigma, keys.fold(key, "x")))
    if dataclasses.is_dataclass(update) and not isinstance(update, type):
        return type(update)(
            **blurred({f.name: getattr(update, f.name) for f in dataclasses.fields(update)}, sigma, key, still)
        )
    if isinstance(update, Mapping):
        return {n: v if n in still else blurred(v, sigma, keys.fold(key, n), still) for n, v in update.items()}
    if isinstance(update, list | tuple):
        return type(update)(blurred(v, sigma, keys.fold(key, i), still) for i, v in enumerate(update))
    return update
