"""Weights at the precision of a device."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from potluck import keys, methods
from potluck.errors import BadInput
from potluck.fleet import Data, Local
from potluck.methods import fedcfc
from potluck.methods.parts.fedcfc import precision
from potluck.models import build


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


def test_a_scale_for_each_row_is_as_fine_as_the_row_needs() -> None:
    weights = {"w": torch.tensor([[1.0, -0.5, 0.25], [0.01, 0.02, -0.005]]), "b": torch.tensor([0.1, 0.2])}
    whole, rows = (precision.loaded(precision.stored(weights, "int8", by_row)) for by_row in (False, True))
    error = [(found["w"] - weights["w"]).abs().amax(1) for found in (whole, rows)]
    assert float(error[1][1]) < 0.03 * float(error[0][1])
    assert torch.allclose(error[0][0], error[1][0])
    kept = precision.stored(weights, "int8", True)
    assert kept["w#scale"].shape == (2, 1)
    assert kept["b#scale"].shape == ()
    again = precision.rounded(precision.loaded(kept), kept, keys.key("again"))
    assert all(torch.equal(again[name], kept[name]) for name in kept)


def test_int8_clients_with_momentum_learn_more_in_the_same_steps() -> None:
    """Small steps add up: with plain steps of the same size the weights hardly move."""
    losses = []
    for momentum in (0.0, 0.9):
        method = methods.load("fedcfc")
        cfg = method.configure(
            {"recipe.lr": 0.01, "recipe.batch": 5, "recipe.epochs": 12, "recipe.momentum": momentum, "scales": "row"}
        )
        model = build("cfc", (6, 2), 2, {"hidden": 4, "backbone": 6, "head": 4})
        y = torch.arange(20) % 2
        x = (2.0 * y - 1.0)[:, None, None] + 0.3 * keys.normal(keys.key("x"), (20, 6, 2))
        weights = model.init(0)
        mine = replace(fedcfc.private(weights, cfg), weights=precision.stored(weights, "int8", rows=True))
        task = fedcfc.task_of(fedcfc.start(weights, cfg), cfg, 0, 0)
        done = fedcfc.train(task, Local(model, Data(x, y, torch.ones(20)), mine, keys.key(3)))
        logits = model.logits(precision.loaded(done.mine.weights), x)
        losses.append(float(model.losses(logits, y).mean()))
    assert losses[1] < 0.7 * losses[0]


def test_momentum_does_not_go_with_control_variates() -> None:
    with pytest.raises(BadInput, match=r"recipe\.momentum: must be 0 with fscaf"):
        methods.load("fedcfc").configure({"variant": "fscaf", "recipe.momentum": 0.9})
