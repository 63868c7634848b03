"""Models cut in two, encoders from files, and the classifier chosen by memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from potluck import keys
from potluck.errors import BadInput
from potluck.models import build
from potluck.models.choice import fitting
from potluck.models.files import read_encoder
from potluck.models.layers import Pass

MODELS: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("softmax", (4,), {}),
    ("mlp", (4, 3), {"hidden": [6, 5]}),
    ("convnet", (40, 6), {"width": 4, "classifier": "medium"}),
    ("cnn", (1, 12, 12), {"channels": [2, 3], "hidden": [5]}),
    ("compact", (3, 12, 12), {"width": 4, "classifier": "large"}),
    ("resnet18", (3, 8, 8), {"width": 4}),
    ("gru", (7, 3), {}),
]


class Twice(nn.Module):
    """Its last layer reads the sample itself as well as the features."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(shape[0], 3), nn.Linear(3, 3), nn.Linear(3 + shape[0], classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(torch.cat([self.middle(self.first(x)), x], 1))
        return out


@pytest.mark.parametrize(("name", "shape", "settings"), MODELS, ids=[name for name, *_ in MODELS])
def test_the_parts_make_the_whole(name: str, shape: tuple[int, ...], settings: dict[str, Any]) -> None:
    model = build(name, shape, 3, settings)
    split, weights = model.split(), model.init(1)
    x = keys.normal(keys.key("x"), (5, *shape))
    features = split.encode(weights, x)
    assert torch.equal(split.classify(weights, features), model.logits(weights, x))
    assert split.encoder | split.classifier == set(weights)
    assert not split.encoder & split.classifier
    assert split.last_input(weights, features).shape[0] == 5
    stacked = torch.func.vmap(lambda one: split.classify(weights, split.encode(weights, one)))(torch.stack([x, x]))
    torch.testing.assert_close(stacked[1], model.logits(weights, x))


def test_any_layer_can_be_named() -> None:
    model = build("mlp", (4,), 3, {"hidden": [6, 5]})
    assert model.split().layer == "fc3"
    early = model.split("fc2")
    assert early.classifier == {"fc2.weight", "fc2.bias", "fc3.weight", "fc3.bias"}
    assert early.encode(model.init(0), torch.zeros(2, 4)).shape == (2, 6)
    with pytest.raises(BadInput, match="fc3"):
        model.split("fc9")


def test_dropout_before_the_cut_belongs_to_the_classifier() -> None:
    model = build("convnet", (40, 6), 3, {"width": 4, "dropout": 0.5})
    split, weights = model.split(), model.init(0)
    features = split.encode(weights, keys.normal(keys.key("x"), (4, 40, 6)))
    quiet = split.classify(weights, features)
    assert not torch.equal(quiet, split.classify(weights, features, Pass(None, keys.key(1))))


def test_lengths_reach_the_encoder() -> None:
    model = build("gru", (7, 3), 3, {})
    split, weights = model.split(given=("t", "length")), model.init(0)
    assert split.given == {"length"}
    x, length = keys.normal(keys.key("x"), (4, 7, 3)), torch.tensor([1, 7, 3, 5])
    out = split.classify(weights, split.encode(weights, x, length=length))
    assert torch.equal(out, model.logits(weights, x, length=length))


def test_a_model_that_cannot_be_split_says_so() -> None:
    model = build(f"{__name__}:Twice", (4,), 3)
    with pytest.raises(BadInput, match="more than its features"):
        model.split("middle")


@pytest.mark.parametrize(
    ("memory", "smallest", "largest"),
    [(10**6, "small", "large"), (26_000, "small", "medium"), (11_000, "small", "small")],
)
def test_eq_1_picks_a_classifier_that_fits(memory: int, smallest: str, largest: str) -> None:
    settings = {"width": 4, "features": 20}
    for prefer, expected in (("smallest", smallest), ("largest", largest)):
        model = fitting("convnet", (40, 6), 3, settings, memory, prefer)
        assert model.settings["classifier"] == expected
        weights, split = model.init(0), model.split()
        classifier = sum(weights[name].numel() for name in split.classifier)
        assert classifier * 12 < memory - 4 * sum(weights[name].numel() for name in split.encoder)


def test_eq_1_without_any_that_fits() -> None:
    with pytest.raises(BadInput, match="smallest device has 500"):
        fitting("convnet", (40, 6), 3, {"width": 4}, 500)


def test_an_encoder_comes_from_a_file(tmp_path: Path) -> None:
    model, other = build("mlp", (4,), 3, {"hidden": [6]}), build("mlp", (4,), 5, {"hidden": [6]})
    mine, theirs = model.init(0), other.init(1)
    save_file(theirs, tmp_path / "all.safetensors")
    found = read_encoder(tmp_path / "all.safetensors", mine, model.split().encoder)
    assert set(found) == {"fc1.weight", "fc1.bias"}  # five classes do not fit three
    assert torch.equal(found["fc1.weight"], theirs["fc1.weight"])


def test_a_file_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    model = build("mlp", (4,), 3, {"hidden": [6]})

    def read(name: str) -> None:
        read_encoder(tmp_path / f"{name}.safetensors", model.init(0), model.split().encoder)

    with pytest.raises(BadInput, match="there is no file"):
        read("none")
    (tmp_path / "text.safetensors").write_text("nothing of the kind")
    with pytest.raises(BadInput, match="not a safetensors file"):
        read("text")
    save_file({"fc1.weight": torch.zeros(6, 9)}, tmp_path / "other.safetensors")
    with pytest.raises(BadInput, match="same model and sample shape"):
        read("other")
    save_file({"fc1.weight": torch.zeros(6, 4)}, tmp_path / "half.safetensors")
    with pytest.raises(BadInput, match=r"nothing for 'fc1.bias'"):
        read("half")
    save_file({"fc1.weight": torch.zeros(6, 4), "fc1.bias": torch.full((6,), torch.nan)}, tmp_path / "nan.safetensors")
    with pytest.raises(BadInput, match="not finite"):
        read("nan")
