"""The catalogue: parameter counts by hand, sub-model widths, sample shapes, settings, the table."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from torch import Tensor
from torch.func import grad

from potluck import keys
from potluck.errors import BadInput
from potluck.models import Params, build, catalogue, default_for, table


def parameters(name: str, shape: tuple[int, ...], classes: int, **settings: Any) -> int:
    model = build(name, shape, classes, settings)
    return sum(value.numel() for key, value in model.init(0).items() if key in model.trainable)


def test_parameter_counts() -> None:
    assert parameters("softmax", (55,), 2) == 55 * 2 + 2
    assert parameters("svm", (55,), 2) == 55 * 2 + 2
    assert parameters("mlp", (900,), 5) == 900 * 128 + 128 + 128 * 5 + 5
    assert parameters("mlp", (30, 30), 3, hidden=[300]) == 900 * 300 + 300 + 300 * 3 + 3
    assert parameters("cnn", (1, 28, 28), 10) == 20_490  # FedConv's MNIST net
    assert parameters("cnn", (1, 28, 28), 10, norm="batch") == 20_490 + 2 * (16 + 32)
    assert parameters("cnn5", (1, 28, 28), 10) == 25 * 32 + 32 + 32 * 25 * 64 + 64 + 1024 * 10 + 10
    # FedConv on 900 values as 30 x 30: two convolutions of stride 2 leave 8 x 8
    har = parameters("cnn", (900,), 5, image=[1, 30, 30], stride=2, pool=1, norm="frozen")
    assert har == 9 * 16 + 16 + 16 * 9 * 32 + 32 + 2 * 48 + 32 * 64 * 5 + 5
    assert parameters("convnet", (128, 9), 6) == 135_468 + 100 * 6 + 6  # Centaur's encoder and its classifier
    assert parameters("convnet", (128, 9), 6, norm="batch", classifier="medium") == 135_468 + 6464 + 390
    assert parameters("gru", (125, 6), 6) == 3 * 32 * (6 + 32 + 2) + 32 * 6 + 6
    assert parameters("lstm", (125, 6), 6, layers=2) == 4 * 32 * (6 + 32 + 2) + 4 * 32 * (64 + 2) + 32 * 6 + 6
    assert parameters("rnn", (125, 6), 6, hidden=8) == 8 * (6 + 8 + 2) + 8 * 6 + 6
    small = parameters("resnet18", (3, 32, 32), 10, width=16)
    assert parameters("resnet18", (3, 32, 32), 10, width=16, norm="batch") == small
    # 3x3 stem, blocks of two 3x3 convolutions, three 1x1 shortcuts, scale and shift of every norm, classifier
    widths = (16, 32, 64, 128)
    convs = 27 * 16 + 9 * sum(3 * w * w for w in widths) + 9 * (16 * 16 + 16 * 32 + 32 * 64 + 64 * 128)
    shortcuts = 16 * 32 + 32 * 64 + 64 * 128
    norms = 2 * (16 + 4 * sum(widths) + sum(widths[1:]))
    assert small == convs + shortcuts + norms + 128 * 10 + 10


def test_resnet18_at_its_usual_size() -> None:
    assert parameters("resnet18", (3, 32, 32), 10) == 11_173_962


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        ((128, 9), [(9, 124), (9, 60), (9, 28), (7, 26), (5, 12), (3, 5)]),
        ((200, 27), [(27, 196), (27, 96), (27, 46), (13, 21), (6, 9), (3, 3)]),
        ((10, 2), [(2, 6), (2, 1), (2, 1), (1, 1), (1, 1), (1, 1)]),
    ],
)
def test_convnet_sizes_are_the_papers(shape: tuple[int, int], sizes: list[tuple[int, int]]) -> None:
    model = build("convnet", shape, 6, {"width": 2})
    seen: list[tuple[int, ...]] = []
    for i in range(1, 7):
        model.module.get_submodule(f"conv{i}").register_forward_hook(lambda _m, _i, out: seen.append(out.shape[2:]))
    assert model.logits(model.init(0), torch.zeros(1, *shape)).shape == (1, 6)
    assert [tuple(s) for s in seen] == sizes


def test_pooling_before_the_activation_is_the_same_function() -> None:
    model = build("cnn", (1, 8, 8), 3, {"channels": [2, 3]})
    w = model.init(0)
    x = keys.normal(keys.key("x"), (2, 1, 8, 8))
    h = F.max_pool2d(F.relu(F.conv2d(x, w["conv1.weight"], w["conv1.bias"], padding=1)), 2)
    h = F.max_pool2d(F.relu(F.conv2d(h, w["conv2.weight"], w["conv2.bias"], padding=1)), 2)
    expected = F.linear(h.flatten(1), w["fc.weight"], w["fc.bias"])
    torch.testing.assert_close(model.logits(w, x), expected)


def leading(weights: Params, share: float, classes: int, spatial: int) -> Params:
    """FedConv's sub-model of a two-convolution net: the leading channels, inputs and classes left whole."""
    one, two = int(share * weights["conv1.weight"].shape[0]), int(share * weights["conv2.weight"].shape[0])
    cut: Params = {}
    for name, value in weights.items():
        rows = classes if name.startswith("fc") else one if name[4] == "1" else two
        value = value[:rows]
        if name == "conv2.weight":
            value = value[:, :one]
        if name == "fc.weight":
            value = value[:, : two * spatial]
        cut[name] = value
    return cut


@pytest.mark.parametrize(
    ("share", "count"), [(1, 20_490), (0.75, 14_506), (0.5625, 10_396), (0.5, 9_098), (0.25, 4_266)]
)
def test_slices_of_smaller_width_run(share: float, count: int) -> None:
    model = build("cnn", (1, 28, 28), 10)
    slice_ = leading(model.init(0), share, 10, 49)
    assert sum(value.numel() for value in slice_.values()) == count
    x = keys.normal(keys.key("x"), (2, 1, 28, 28))
    gradient = grad(lambda w: model.train_logits(w, x)[0].sum())(slice_)
    assert {name: value.shape for name, value in gradient.items()} == {n: v.shape for n, v in slice_.items()}


@pytest.mark.parametrize("norm", ["group", "layer", "batch", "frozen"])
def test_slices_run_with_every_norm(norm: str) -> None:
    model = build("cnn", (1, 8, 8), 3, {"norm": norm})
    slice_ = leading(model.init(0), 0.5625, 3, 4)
    logits, changed = model.train_logits(slice_, torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0)))
    assert logits.shape == (3, 3)
    assert all(value.shape == slice_[name].shape for name, value in changed.items())
    assert model.logits({**slice_, **changed}, torch.ones(2, 1, 8, 8)).shape == (2, 3)


def test_slices_of_other_models_run() -> None:
    gru = build("gru", (5, 2), 3, {"hidden": 4})
    narrow = build("gru", (5, 2), 3, {"hidden": 2})
    x = torch.ones(2, 5, 2)
    assert torch.equal(gru.logits(narrow.init(0), x), narrow.logits(narrow.init(0), x))
    wide, thin = (build("resnet18", (3, 8, 8), 3, {"width": width, "groups": 2}) for width in (4, 2))
    image = torch.ones(2, 3, 8, 8)
    assert torch.equal(wide.logits(thin.init(0), image), thin.logits(thin.init(0), image))


@given(name=st.sampled_from(sorted(catalogue())), classes=st.integers(2, 5), seed=st.integers(0, 99))
def test_every_model_gives_logits_of_its_classes(name: str, classes: int, seed: int) -> None:
    takes = catalogue()[name].takes
    shape = {"(time, channels)": (12, 3), "(channels, height, width)": (2, 16, 16)}.get(takes, (7,))
    model = build(name, shape, classes, {"width": 2} if name in ("resnet18", "convnet") else {})
    x = keys.normal(keys.key(seed), (2, *shape))
    weights = model.init(seed)
    logits = model.logits(weights, x)
    assert logits.shape == (2, classes)
    assert torch.all(torch.isfinite(logits))
    trained, _ = model.train_logits(weights, x, weight=torch.tensor([1.0, 0.0]), key=keys.key(seed))
    assert trained.shape == (2, classes)


def test_plane_images_and_flat_samples_reach_the_cnn() -> None:
    plane = build("cnn", (36, 36), 5, {"norm": "batch"})
    assert plane.logits(plane.init(0), torch.ones(2, 36, 36)).shape == (2, 5)
    flat = build("cnn", (900,), 5, {"image": [1, 30, 30], "stride": 2, "pool": 1, "norm": "frozen"})
    assert flat.logits(flat.init(0), torch.ones(2, 900)).shape == (2, 5)
    assert flat.train_logits(flat.init(0), torch.ones(2, 900))[1] == {}


def test_resnet_without_norm_starts_as_its_shortcuts() -> None:
    model = build("resnet18", (3, 16, 16), 10, {"width": 8, "norm": "none"})
    weights = model.init(0)
    assert torch.all(weights["block8.conv2.weight"] == 0)
    logits = model.logits(weights, keys.normal(keys.key("x"), (8, 3, 16, 16)))
    assert 0.01 < logits.std().item() < 3.0


def test_settings_are_completed_with_defaults() -> None:
    assert build("mlp", (3,), 2, {"hidden": 7}).settings == {
        "hidden": [7],
        "activation": "relu",
        "dropout": 0.0,
    }
    assert build("cnn5", (1, 28, 28), 10).settings["kernel"] == 5
    assert build("cnn", (1, 28, 28), 10).settings["kernel"] == 3
    assert catalogue()["cnn5"].settings == build("cnn5", (1, 28, 28), 10).settings


@pytest.mark.parametrize(
    ("name", "shape", "settings", "sentence"),
    [
        ("mpl", (3,), {}, "model: 'mpl' is not known, did you mean 'mlp'"),
        ("mlp", (3,), {"hiden": [3]}, "model settings: 'hiden' is not known, did you mean 'hidden'"),
        ("softmax", (3,), {"hidden": 3}, "model settings: this model has no settings, got 'hidden'"),
        (
            "mlp",
            (3,),
            {"hidden": [0]},
            r"model.hidden: must be at least 1, got \[0\]",
        ),
        ("mlp", (3,), {"hidden": "wide"}, "model.hidden: must be a list, got 'wide'"),
        ("mlp", (3,), {"dropout": 1.0}, "model.dropout: must be less than 1, got 1.0"),
        ("mlp", (3,), {"activation": "rleu"}, "model.activation: 'rleu' is not known, did you mean 'relu'"),
        ("resnet18", (3, 8, 8), {"norm": "bach"}, "model.norm: 'bach' is not known, did you mean 'batch'"),
        ("cnn", (3,), {}, r"model: cnn was asked for samples of shape \(3,\)"),
        ("cnn", (12,), {"image": [1, 3, 3]}, "model.image: .1, 3, 3. was given for samples of shape"),
        ("cnn5", (1, 10, 10), {}, r"model: \(1, 10, 10\) is too small; conv2 .* leaves nothing of \(3, 3\)"),
        ("gru", (3,), {}, r"model: samples for gru: must be of shape \(time, channels\), got \(3,\)"),
        ("convnet", (1, 8, 8), {}, "model: convnet was asked for"),
        ("mlp", (), {}, r"shape: must be one or more sizes, each 1 or more, got \(\)"),
        ("mlp", (3, 0), {}, r"shape: must be one or more sizes, each 1 or more, got \(3, 0\)"),
    ],
)
def test_bad_input_is_one_sentence(name: str, shape: tuple[int, ...], settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence) as refused:
        build(name, shape, 3, settings)
    assert "\n" not in str(refused.value)


def test_one_class_is_refused() -> None:
    with pytest.raises(BadInput, match="classes: must be 2 or more, got 1"):
        build("mlp", (3,), 1)


def test_default_models() -> None:
    assert [default_for(s) for s in ((9,), (128, 9), (1, 28, 28), (3, 2, 2))] == ["mlp", "mlp", "cnn", "mlp"]
    for shape in ((9,), (128, 9), (1, 28, 28), (3, 4, 4), (3, 2, 2), (1, 1, 40)):
        build(default_for(shape), shape, 2)


def test_the_table_names_every_model_and_setting() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table())
    text = console.export_text()
    for name, info in catalogue().items():
        assert name in text
        assert all(setting in text for setting in info.settings)
    assert "hidden = [128]" in text
    assert "package.module:Class" in text


def test_gradients_flow_to_every_parameter() -> None:
    for name, shape in (("cnn", (1, 8, 8)), ("convnet", (20, 3)), ("lstm", (6, 2)), ("resnet18", (3, 8, 8))):
        model = build(name, shape, 3, {"width": 2} if name in ("resnet18", "convnet") else {})
        x = keys.normal(keys.key("x"), (4, *shape))

        def of(weights: Params, x: Tensor = x, model: Any = model) -> Tensor:
            logits, _ = model.train_logits(weights, x, key=keys.key("k"))
            return model.losses(logits, torch.tensor([0, 1, 2, 0])).sum()

        gradient = grad(of)(model.init(0))
        assert all(torch.any(gradient[parameter] != 0) for parameter in model.trainable), name
