"""Convolution over parameters. Tests numbered 1, 2 and 4 are the acceptance tests of FedConv's specification."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers.submodels import MODELS, RATIOS, kernels_of, model_of, rows_of

from potluck import keys
from potluck.errors import BadInput
from potluck.methods.parts.submodels import kernels
from potluck.methods.parts.submodels.kernels import Lattice
from potluck.methods.parts.submodels.widths import cut, leading, masks_of, plan_of, spaced


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("ratio", RATIOS)
def test_1_an_untuned_delta_gives_the_leading_slice(name: str, ratio: float) -> None:
    model = model_of(name)
    weights, plan = model.init(0), plan_of(model)
    made_of = kernels.compress(weights, kernels_of(model, weights, ratio), plan, ratio)
    for tensor, value in cut(weights, plan, leading(plan, ratio)).items():
        assert torch.equal(made_of[tensor], value), tensor


def test_1_an_untuned_delta_dilates_to_the_global_model_with_the_block_inserted() -> None:
    model = model_of("mlp")
    weights, plan = model.init(0), plan_of(model)
    sub = {name: value + 1.0 for name, value in cut(weights, plan, leading(plan, 0.5)).items()}
    own = kernels_of(model, weights, 0.5)
    big = kernels.dilate(sub, own, weights)
    assert torch.allclose(big["fc2.weight"][:4, :8], sub["fc2.weight"])
    assert torch.equal(big["fc2.weight"][4:], weights["fc2.weight"][4:])
    bare = kernels.dilate(sub, own, weights, fill="zero")
    assert float(bare["fc2.weight"][4:].abs().sum()) == 0.0


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("start", ["delta", "random"])
def test_2_shapes_are_those_of_the_target_network(name: str, ratio: float, start: Any) -> None:
    model = model_of(name)
    weights, plan = model.init(0), plan_of(model)
    own = kernels_of(model, weights, ratio, start=start)
    sub = kernels.compress(weights, own, plan, ratio)
    assert {n: tuple(v.shape) for n, v in sub.items()} == plan.shapes(weights, ratio)
    assert model.logits(sub, torch.zeros(2, *model.shape)).shape == (2, 10)
    big = kernels.dilate(sub, own, weights)
    assert {n: v.shape for n, v in big.items()} == {n: v.shape for n, v in weights.items()}


def test_3_no_kernel_is_without_a_gradient() -> None:
    """A number that cannot change the loss would be moved by rounding noise alone: Adam's steps have one size."""
    model = model_of("mlp")
    weights, plan = model.init(0), plan_of(model)
    data = rows_of(model)
    for activation in ("identity", "mlr"):
        own = kernels_of(model, weights, 0.5, activation=activation)
        free = {name: value.requires_grad_() for name, value in own.items()}
        sub = kernels.compress(weights, free, plan, 0.5, activation)  # type: ignore[arg-type]
        loss = torch.nn.functional.cross_entropy(model.logits(sub, data.x), data.y)
        for name, gradient in zip(free, torch.autograd.grad(loss, list(free.values())), strict=True):
            assert float(gradient.abs().max()) > 1e-6, (activation, name)


def test_a_normed_kernel_has_its_length_by_g_alone() -> None:
    model = model_of("mlp")
    weights = model.init(0)
    own, plain = (kernels_of(model, weights, 0.5, start="random", normed=normed) for normed in (True, False))
    assert not any(name.endswith("/g") for name in plain)
    for name in (name.removesuffix("/v") for name in plain if name.endswith("/v")):
        assert torch.equal(kernels.kernel(plain, name), own[f"{name}/v"])  # the same first draw
        if f"{name}/g" in own:
            longer = own | {f"{name}/v": 3.0 * own[f"{name}/v"]}
            assert torch.allclose(kernels.kernel(longer, name), kernels.kernel(plain, name))


def test_eq_2_the_rate_follows_the_cosine() -> None:
    assert kernels.cosine(5, 1e-3) == pytest.approx([1e-3, 8.55e-4, 5.05e-4, 1.55e-4, 1e-5], rel=1e-2)


def test_4_the_stack_and_the_affine_form_are_one_function() -> None:
    model = model_of("mnist")
    weights, plan = model.init(0), plan_of(model)
    stack = kernels_of(model, weights, 0.5, start="random", pre="stack16")
    plain = {}
    for name in weights:
        w, c = kernels.collapsed(stack, name)
        plain |= {f"{name}/v": w, f"{name}/g": w.flatten(1).norm(dim=1), f"{name}/c": c}
    for activation in ("identity", "mlr"):
        one = kernels.compress(weights, stack, plan, 0.5, activation)  # type: ignore[arg-type]
        other = kernels.compress(weights, plain, plan, 0.5, activation)  # type: ignore[arg-type]
        for name in weights:
            torch.testing.assert_close(one[name], other[name], atol=1e-5, rtol=1e-4)


def test_long_kernels_by_fourier_transform_give_the_same() -> None:
    """These sizes are above the number of multiplications from which on the transform is used."""
    x, w, sub = (keys.normal(keys.key(i), size) for i, size in enumerate([(2, 40, 90), (2, 20, 60), (2, 21, 31)]))
    assert kernels.DIRECT < 21 * 31 * 20 * 60
    direct = F.conv2d(x[None], w[:, None], groups=2)[0]
    torch.testing.assert_close(kernels.correlate(x, w), direct, atol=1e-3, rtol=1e-4)
    wide = F.conv_transpose2d(sub[None], w[:, None], groups=2)[0]
    torch.testing.assert_close(kernels.spread(sub, w), wide, atol=1e-3, rtol=1e-4)


def test_mlr_has_the_published_slopes() -> None:
    assert kernels.mlr(torch.tensor([2.0, -2.0])).tolist() == pytest.approx([1.7, -0.002])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("lattice", [Lattice(2, 0), Lattice(1, 1), Lattice(2, 2), Lattice(1, 0, "entries")], ids=str)
def test_an_untuned_delta_on_any_lattice_gives_channels_at_equal_steps(name: str, lattice: Lattice) -> None:
    """And stretched again, with the client's own numbers moved, exactly those entries of the global model."""
    model = model_of(name)
    weights, plan = model.init(0), plan_of(model)
    own = kernels_of(model, weights, 0.5, lattice=lattice)
    sub = kernels.compress(weights, own, plan, 0.5, lattice=lattice)
    wanted = cut(weights, plan, spaced(plan, 0.5, lattice.stride))
    for tensor, value in wanted.items():
        torch.testing.assert_close(sub[tensor], value)
    moved = {tensor: value + 1.0 for tensor, value in sub.items()}
    big = kernels.dilate(moved, own, weights, lattice=lattice)
    masks = masks_of(plan, {tensor: value[None] for tensor, value in weights.items()}, 0.5, lattice.stride)
    for tensor, value in weights.items():
        torch.testing.assert_close(big[tensor], value + masks[tensor].to(value.dtype))


def test_a_linear_layer_after_a_flatten_has_a_kernel_for_each_position() -> None:
    """No tap mixes two positions: a change of one position's inputs changes the same position alone."""
    model = model_of("mnist")
    weights, plan = model.init(0), plan_of(model)
    name = next(tensor for tensor, axes in plan.axes.items() if len(axes) == 2 and axes[1].per > 1)
    per = plan.axes[name][1].per
    own = kernels_of(model, weights, 0.5, start="random")
    assert len(own[f"{name}/v"]) == per
    moved = {**weights, name: weights[name].clone()}
    moved[name][:, 3::per] += 1.0
    change = kernels.compress(moved, own, plan, 0.5)[name] - kernels.compress(weights, own, plan, 0.5)[name]
    assert float(change[:, 3::per].abs().min()) > 0
    change[:, 3::per] = 0.0
    assert float(change.abs().max()) == 0.0


def test_a_stride_makes_kernels_shorter_and_padding_longer() -> None:
    assert [Lattice(stride).taps(16, 8) for stride in (1, 2, 3)] == [9, 2, 2]  # a third channel would not fit
    assert Lattice(1, 2).taps(16, 8) == 13
    assert Lattice(2, 3).taps(10, 10) == 1  # an axis that stays
    with pytest.raises(BadInput, match="stride: must be 1 with flatten = entries"):
        kernels.Kernels(stride=2, flatten="entries")
