"""How the server combines models: the mean, or a rule that some liars cannot bend (`method.merge.rule`).

    mean              weighted by samples
    median            of each number (Yin et al., ICML 2018, Definition 1)
    trimmed           mean of each number without the largest and the smallest ones (Yin et al., Definition 2)
    krum              the mean of the `keep` models that are nearest to their neighbours (Blanchard et al., NeurIPS
                      2017: Multi-Krum; Krum with `keep = 1`); by default of all but the share that may lie
    geometric-median  the point with the smallest sum of distances, by the smoothed Weiszfeld algorithm, weighted by
                      samples (Pillutla et al., "Robust Aggregation for Federated Learning", Algorithm 2)
    centred-clip      the models' changes clipped around the last aggregate (Karimireddy et al., ICML 2021, Algorithm 2;
                      its radius is the median length of the changes)

`share` is the share of the models that may lie. The rules other than the mean and the geometric median count every
model once, whatever number of samples it claims. Methods with clusters apply the rule inside each cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from potluck.fleet import Params
from potluck.methods.parts import checks
from potluck.tensors import mean, one_row

Rule = Literal["mean", "median", "trimmed", "krum", "geometric-median", "centred-clip"]
STEPS = {"geometric-median": 8, "centred-clip": 3}
SMOOTH = 1e-6  # nu of Pillutla et al.


@dataclass(frozen=True)
class Merge:
    """How models are combined."""

    rule: Rule = "mean"  # mean | median | trimmed | krum | geometric-median | centred-clip
    share: float = 0.2  # of the models that may lie, for trimmed and krum
    keep: int = 0  # models whose mean krum takes; 0: all but `share` of them

    def __post_init__(self) -> None:
        checks.within(self, "share", 0.0, 0.49)
        checks.at_least(self, "keep", 0)


MEAN = Merge()


def merged(
    models: Sequence[Params], weights: Iterable[float | Tensor] | None, merge: Merge, last: Params | None = None
) -> Params:
    """Combine models. `last` is the aggregate that they began from (default: the median), for centred-clip."""
    if merge.rule == "mean" or len(models) == 1:
        return mean(models, weights)
    share = None if weights is None else one_row(weights).double()
    names = [name for name, value in models[0].items() if value.is_floating_point()]
    rows = torch.stack([torch.cat([model[name].reshape(-1) for name in names]) for model in models])
    start = None if last is None else torch.cat([last[name].reshape(-1) for name in names])
    found = _combined(rows, share, merge, start)
    parts = torch.split(found, [models[0][name].numel() for name in names])
    whole = dict(models[0])
    whole |= {name: part.reshape(models[0][name].shape) for name, part in zip(names, parts, strict=True)}
    return whole


def _combined(rows: Tensor, share: Tensor | None, merge: Merge, last: Tensor | None) -> Tensor:
    if merge.rule == "median":
        return rows.quantile(0.5, dim=0) if len(rows) % 2 == 0 else rows.median(0).values
    if merge.rule == "trimmed":
        few = int(merge.share * len(rows))
        return rows.sort(0).values[few : len(rows) - few].mean(0)
    if merge.rule == "krum":
        liars = int(merge.share * len(rows))
        return _krum(rows, liars, merge.keep or len(rows) - liars)
    if merge.rule == "geometric-median":
        return _geometric_median(rows, share)
    return _centred_clip(rows, rows.median(0).values if last is None else last)


def _krum(rows: Tensor, liars: int, keep: int) -> Tensor:
    """The mean of the `keep` rows with the smallest sum of squared distances to their n - f - 2 nearest rows."""
    apart = torch.cdist(rows, rows).square()
    near = max(1, len(rows) - liars - 2)
    scores = apart.sort(1).values[:, 1 : 1 + near].sum(1)  # the first is the row itself
    return rows[scores.argsort()[:keep]].mean(0)


def _geometric_median(rows: Tensor, share: Tensor | None) -> Tensor:
    alpha = torch.ones(len(rows)) if share is None else (share / share.sum()).to(rows.dtype)
    point = (alpha[:, None] * rows).sum(0) / alpha.sum()
    for _ in range(STEPS["geometric-median"]):
        pull = alpha / torch.linalg.vector_norm(rows - point, dim=1).clamp_min(SMOOTH)
        point = (pull[:, None] * rows).sum(0) / pull.sum()
    return point


def _centred_clip(rows: Tensor, last: Tensor) -> Tensor:
    point = last
    for _ in range(STEPS["centred-clip"]):
        changes = rows - point
        length = torch.linalg.vector_norm(changes, dim=1)
        factor = (length.median() / length.clamp_min(1e-30)).clamp_max(1.0)
        point = point + (factor[:, None] * changes).mean(0)
    return point
