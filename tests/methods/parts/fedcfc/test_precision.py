"""Weights at the precision of a device."""

from __future__ import annotations

import pytest
import torch

from potluck import keys
from potluck.methods.parts.fedcfc import precision


@pytest.mark.parametrize("form", ["float16", "int8"])
def test_rounding_at_random_has_the_right_mean(form: str) -> None:
    weights = {"w": torch.full((20_000,), 0.3001), "v": torch.tensor([1.0, -1.0])}
    like = precision.stored(weights, form)
    value = {"w": torch.full((20_000,), 0.30037), "v": weights["v"]}
    back = precision.loaded(precision.rounded(value, like, keys.key("round")))
    grid = back["w"].float().unique()
    assert len(grid) <= 2
    assert float(back["w"].float().mean()) == pytest.approx(0.30037, abs=6e-5)
    exact = precision.rounded(precision.loaded(like), like, keys.key("again"))
    assert all(torch.equal(exact[name], like[name]) for name in like)  # values on the grid stay


def test_int8_biases_that_begin_at_zero_can_grow() -> None:
    """Their scale comes from nothing: without a least scale they could never exceed a millionth."""
    kept = precision.stored({"fc.bias": torch.zeros(3), "fc.weight": torch.zeros(2, 3)}, "int8")
    moved = precision.rounded({name: value + 0.3 for name, value in precision.loaded(kept).items()}, kept, keys.key(1))
    assert torch.allclose(precision.loaded(moved)["fc.bias"], torch.full((3,), 0.3), atol=0.004)
