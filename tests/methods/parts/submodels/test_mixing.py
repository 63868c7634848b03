"""The mean with learned weights. The test numbered 5 is an acceptance test of FedConv's specification."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers.submodels import kernels_of, model_of

from potluck import methods
from potluck.errors import BadInput
from potluck.fleet import Params
from potluck.methods.parts.submodels import kernels, mixing
from potluck.methods.parts.submodels.widths import cut, leading, masks_of, merged, plan_of
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


def some(widths: list[float]) -> tuple[Params, list[Params], mixing.Changes, Any]:
    """Sub-models of a global model, trained elsewhere, and their changes."""
    model = model_of("mlp")
    plan, weights = plan_of(model), model.init(0)
    subs = [cut(model.init(k + 1), plan, leading(plan, width)) for k, width in enumerate(widths)]
    own = {width: kernels_of(model, weights, width) for width in widths}
    big = [kernels.dilate(sub, own[width], weights) for sub, width in zip(subs, widths, strict=True)]
    stack, counts = mixing.stacked(big), torch.tensor([5.0, 1.0, 2.0, 4.0][: len(widths)])
    distinct = sorted(set(widths))
    masks = [masks_of(plan, stack, width) for width in distinct]
    at = torch.tensor([distinct.index(width) for width in widths])
    return weights, subs, mixing.changes(weights, stack, masks, at, counts), plan


@pytest.mark.parametrize("by", ["scalar", "element"])
def test_changes_with_weights_of_one_are_heterofls_mean_over_holders(by: str) -> None:
    weights, subs, given, plan = some([1.0, 0.5, 0.5, 0.25])
    stack = {name: torch.zeros(4, *value.shape) for name, value in weights.items()}
    ones = mixing.ones(stack, frozenset(weights), plan.layers, by)
    parts = [(s, leading(plan, r), float(n)) for s, r, n in zip(subs, (1.0, 0.5, 0.5, 0.25), given.counts, strict=True)]
    for name, value in merged(weights, plan, parts).items():
        torch.testing.assert_close(mixing.stepped(given, ones, plan.layers)[name], value, atol=1e-6, rtol=1e-5)


def test_the_portions_of_an_entry_add_up_to_one() -> None:
    """If all holders changed an entry alike, the step is that change, whatever v is; v decides between clients."""
    weights, _, given, plan = some([1.0, 0.5, 0.25])
    alike = given._replace(held={name: torch.ones_like(held) * (held != 0) for name, held in given.held.items()})
    v = {layer: torch.tensor([0.2, 3.0, 1.7]) for layer in set(plan.layers.values())}
    for name, value in mixing.stepped(alike, v, plan.layers).items():
        torch.testing.assert_close(value, weights[name] + 1.0)
    first = mixing.stepped(given, {layer: torch.tensor([1.0, 0.0, 0.0]) for layer in v}, plan.layers)
    torch.testing.assert_close(first["fc1.weight"], weights["fc1.weight"] + given.held["fc1.weight"][0])


def test_zeros_around_a_block_are_no_changes() -> None:
    with pytest.raises(BadInput, match=r"kernels.fill: must be global with mix.on = changes"):
        methods.load("fedconv").configure({"kernels.fill": "zero"})
    with pytest.raises(BadInput, match=r"init: must be ones with on = changes"):
        methods.load("fedconv").configure({"mix.init": "normal"})
