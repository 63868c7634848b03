"""Rules that liars cannot bend: each by hand, and what all of them promise."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from potluck import keys
from potluck.errors import BadInput
from potluck.methods.parts.merge import Merge, merged
from potluck.tensors import mean

RULES = ("median", "trimmed", "krum", "geometric-median", "centred-clip")


def models(*values: float) -> list[dict[str, Any]]:
    return [{"w": torch.tensor([value, -value]), "count": torch.tensor(i)} for i, value in enumerate(values)]


def found(values: tuple[float, ...], merge: Merge, last: float | None = None) -> float:
    start = None if last is None else models(last)[0]
    one = merged(models(*values), None, merge, start)
    assert int(one["count"]) == 0  # counters are those of the first model
    assert one["w"].tolist() == pytest.approx([float(one["w"][0]), -float(one["w"][0])])
    return float(one["w"][0])


def test_the_mean_is_the_mean_to_the_bit() -> None:
    many = [{"w": keys.normal(keys.key(i), (50,))} for i in range(7)]
    weights = [float(i + 1) for i in range(7)]
    assert torch.equal(merged(many, weights, Merge())["w"], mean(many, weights)["w"])


def test_each_rule_by_hand() -> None:
    assert found((1.0, 2.0, 3.0, 4.0, 100.0), Merge("median")) == 3.0
    assert found((1.0, 2.0, 3.0, 100.0), Merge("median")) == 2.5
    assert found((1.0, 2.0, 3.0, 4.0, 100.0), Merge("trimmed", share=0.2)) == 3.0
    # f = 1, n - f - 2 = 2 neighbours: 2.0 has 1 + 1, 3.0 has 1 + 1.21, 1.0 has 1 + 4.
    assert found((1.0, 2.0, 3.0, 4.1, 100.0), Merge("krum", share=0.2, keep=1)) == 2.0
    assert found((1.0, 2.0, 3.0, 4.1, 100.0), Merge("krum", share=0.2, keep=2)) == 2.5
    whole = found((1.0, 2.0, 3.0, 4.0, 100.0), Merge("krum", share=0.2))  # all but the fifth that may lie
    assert whole == 2.5
    # From 0: lengths 1, 2, 9 (times a common factor), radius 2: (1 + 2 + 2) / 3; then from 5/3, and so on.
    assert found((1.0, 2.0, 9.0), Merge("centred-clip"), last=0.0) == pytest.approx(_clipped([1.0, 2.0, 9.0], 0.0))


def _clipped(values: list[float], point: float) -> float:
    for _ in range(3):
        radius = sorted(abs(value - point) for value in values)[len(values) // 2]
        point += sum(max(-radius, min(radius, value - point)) for value in values) / len(values)
    return point


def test_the_geometric_median_has_the_smallest_sum_of_weighted_distances() -> None:
    rows = torch.stack([keys.normal(keys.key(i), (3,)) for i in range(9)]).double()
    weights = torch.arange(1.0, 10.0).double()
    ours = merged([{"w": row} for row in rows], list(weights), Merge("geometric-median"))["w"]

    def cost(point: Any) -> float:
        return float((weights * (rows - torch.as_tensor(point)).norm(dim=1)).sum())

    best = minimize(cost, rows.mean(0).numpy(), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-9})
    assert cost(ours) <= best.fun * 1.002


@settings(max_examples=40, deadline=None)
@given(
    rule=st.sampled_from(RULES),
    honest=st.lists(st.floats(-1.0, 1.0), min_size=9, max_size=14),
    lie=st.floats(1e3, 1e6),
    sign=st.sampled_from([-1.0, 1.0]),
)
def test_two_liars_of_many_cannot_pull_the_result_away(rule: Any, honest: list[float], lie: float, sign: float) -> None:
    result = found((*honest, sign * lie, sign * lie), Merge(rule, share=0.2), last=0.0)
    assert abs(result) <= 1.0 + 1.5  # the mean would be 1e2 or more away


def test_settings_are_checked() -> None:
    with pytest.raises(BadInput, match=r"share: must be from 0 to 0.49, got 0.5"):
        Merge("trimmed", share=0.5)
    with pytest.raises(BadInput, match="keep: must be 0 or more, got -1"):
        Merge("krum", keep=-1)
