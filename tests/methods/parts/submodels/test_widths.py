"""Which axes shrink, slices and their mean. Tests numbered 2 are an acceptance test of FedConv's specification."""

from __future__ import annotations

import pytest
import torch
from helpers.submodels import RATIOS, kernels_of, model_of

from potluck import keys
from potluck.errors import BadInput
from potluck.methods.parts.submodels import kernels
from potluck.methods.parts.submodels.widths import (
    channel_squares,
    cut,
    kept,
    leading,
    merged,
    plan_of,
    rolled,
    sorted_channels,
)
from potluck.models import build, catalogue

WHOLE = {"softmax": (6,), "svm": (6,), "mlp": (6,), "cnn": (1, 12, 12), "cnn5": (1, 20, 20)}
WHOLE |= {"convnet": (64, 6), "cnn1d": (24, 3), "resnet18": (3, 8, 8)}
REFUSED = {"gru": "gru1", "lstm": "lstm1", "rnn": "rnn1", "bilstm": "ahead", "cfc": "backbone", "ltc": "rate"}
REFUSED |= {"compact": "block1.depth"}


def test_2_parameters_of_the_mnist_network_are_the_published_ones() -> None:
    model = model_of("mnist")
    weights, plan = model.init(0), plan_of(model)
    counts = [sum(v.numel() for v in cut(weights, plan, leading(plan, r)).values()) for r in RATIOS[:-1]]
    assert counts == [20490, 14506, 10396, 9098, 4266]


def test_2_the_first_inputs_and_the_last_outputs_keep_their_size() -> None:
    plan = plan_of(model_of("mnist"))
    assert plan.axes["conv1.weight"][1].group is None
    assert plan.axes["fc.weight"][0].group is None
    assert plan.axes["fc.weight"][1].per == 49  # channel-major after the flatten
    assert plan.axes["fc.bias"][0].group is None


def test_2_layers_that_add_up_share_their_channels() -> None:
    plan = plan_of(model_of("resnet"))
    stem, block = plan.axes["conv.weight"][0].group, plan.axes["block1.conv2.weight"][0].group
    assert stem == block != plan.axes["block1.conv1.weight"][0].group


@pytest.mark.parametrize("name", list(catalogue()))
def test_every_model_of_ours_is_compressed_or_refused_by_a_layers_name(name: str) -> None:
    if name in REFUSED:
        shape = (1, 16, 16) if name == "compact" else (10, 3)
        with pytest.raises(BadInput, match=f"the layer '{REFUSED[name]}'"):
            plan_of(build(name, shape, 4, {}))
        return
    model = build(name, WHOLE[name], 4, {})
    weights, plan = model.init(0), plan_of(model)
    sub = kernels.compress(weights, kernels_of(model, weights, 0.5), plan, 0.5)
    assert model.logits(sub, torch.zeros(2, *model.shape)).shape == (2, 4)


def test_sorting_channels_keeps_the_function() -> None:
    model = model_of("depth")
    weights, plan = model.init(0), plan_of(model)
    ordered = sorted_channels(weights, plan)
    x = keys.normal(keys.key(0), (3, *model.shape))
    torch.testing.assert_close(model.logits(ordered, x), model.logits(weights, x), atol=1e-5, rtol=1e-4)
    squares = channel_squares(ordered, plan)["conv1"]
    assert torch.equal(squares, squares.sort(descending=True).values)
    with pytest.raises(BadInput, match="group norm"):
        sorted_channels(model_of("resnet").init(0), plan_of(model_of("resnet")))


def test_at_least_one_channel_is_kept() -> None:
    assert (kept(16, 0.05), kept(16, 0.5625), kept(10, 0.3)) == (1, 9, 3)


def test_slices_are_averaged_over_their_holders() -> None:
    model = build("mlp", (2,), 2, {"hidden": [4]})
    plan = plan_of(model)
    weights = {name: torch.zeros_like(value) for name, value in model.init(0).items()}
    half, full = leading(plan, 0.5), leading(plan, 1.0)
    narrow = {n: v + 1.0 for n, v in cut(weights, plan, half).items()}
    wide = {n: v + 3.0 for n, v in weights.items()}
    both = merged(weights, plan, [(narrow, half, 1.0), (wide, full, 1.0)])
    assert both["fc1.bias"].tolist() == [2.0, 2.0, 3.0, 3.0]
    alone = merged(weights, plan, [(narrow, half, 1.0)])
    assert alone["fc1.bias"].tolist() == [1.0, 1.0, 0.0, 0.0]  # as it was where nobody holds it


def test_the_rolling_window_goes_round() -> None:
    plan = plan_of(build("mlp", (2,), 2, {"hidden": [4]}))
    assert rolled(plan, 0.5, 3)["fc1"].tolist() == [3, 0]
