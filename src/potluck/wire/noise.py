"""Gaussian noise on what clients upload (ClusterFL section 9.1, for privacy): the setting `wire.noise`, for any method.

Noise is added to every floating-point tensor with an axis (weights, gradients, samples, logits). Single numbers (a
number of examples, a loss), integers and a model's buffers get none: noise could make a variance negative. It is drawn
from the task's own key, so a run can be repeated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from torch import Tensor

from potluck import keys
from potluck.fleet import Data


def blurred(update: Any, sigma: float, key: Tensor, still: Collection[str] = ()) -> Any:
    """The update with N(0, sigma²) added. Fields and entries named in `still` stay as they are."""
    if isinstance(update, Tensor):
        if update.dim() == 0 or not update.is_floating_point():
            return update
        return update + sigma * keys.normal(key, update.shape).to(update.dtype)
    if isinstance(update, Data):  # samples: noise on their weights would hide nothing
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
