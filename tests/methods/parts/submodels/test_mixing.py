"""The mean with learned weights. The test numbered 5 is an acceptance test of FedConv's specification."""

from __future__ import annotations

import pytest
import torch
from helpers.submodels import model_of

from potluck.methods.parts.submodels import mixing
from potluck.methods.parts.submodels.widths import plan_of
from potluck.tensors import mean


def test_5_weights_of_one_give_fedavg() -> None:
    model = model_of("mlp")
    plan = plan_of(model)
    models, counts = [model.init(seed) for seed in range(3)], torch.tensor([5.0, 1.0, 2.0])
    stack = mixing.stacked(models)
    for by in ("scalar", "element"):
        ones = mixing.ones(stack, model.trainable, plan.layers, by)
        mixture = mixing.mixed(stack, counts / counts.sum(), ones, plan.layers)
        for name, value in mean(models, list(counts)).items():
            torch.testing.assert_close(mixture[name], value, atol=1e-6, rtol=0)


def test_the_divergence_start_favours_the_nearer_model() -> None:
    model = model_of("mlp")
    plan = plan_of(model)
    weights = model.init(0)
    stack = mixing.stacked([weights, model.init(1)])
    v = mixing.divergence_start(
        mixing.ones(stack, model.trainable, plan.layers, "scalar"), stack, weights, plan.layers, 50.0
    )
    assert float(v["fc1"][0]) > float(v["fc1"][1])
    assert float(v["fc1"].sum()) == pytest.approx(2.0, abs=1e-5)


def test_scale_match_gives_the_global_spread() -> None:
    model = model_of("mlp")
    weights = model.init(0)
    big = {name: 3.0 * value for name, value in weights.items()}
    matched = mixing.matched(big, weights, model.trainable)
    torch.testing.assert_close(matched["fc1.weight"].std(), weights["fc1.weight"].std())
