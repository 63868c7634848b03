"""A user's own module by import path: what is accepted, and what is refused in one sentence."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.func import grad, vmap

from potluck import keys
from potluck.errors import BadInput
from potluck.models import build

SOURCE = """
import torch
import torch.nn.functional as F
from torch import nn
from potluck.models import BatchNorm, Dropout, Recurrent

state = nn.Linear(2, 2)
number = 3

class Net(nn.Module):
    def __init__(self, shape, classes, width=4):
        super().__init__()
        self.one = nn.Linear(shape[0], width)
        self.norm = BatchNorm(width)
        self.drop = Dropout(0.5)
        self.two = nn.Linear(width, classes)
    def forward(self, x):
        return self.two(self.drop(torch.relu(self.norm(self.one(x)))))

class Fixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 3)
    def forward(self, x):
        return self.fc(x)

class Conv(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.conv = nn.Conv2d(shape[0], classes, 3)
    def forward(self, x):
        return self.conv(x).mean((2, 3))

class Series(nn.Module):
    kind = "recurrent"
    def __init__(self, shape, classes):
        super().__init__()
        self.cell = Recurrent("gru", shape[1], 4)
        self.fc = nn.Linear(4, classes)
    def forward(self, x, t, length):
        return self.fc(self.cell(x)[torch.arange(x.shape[0]), length - 1]) + 0 * t.sum(1, keepdim=True)

class Tied(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.one = nn.Linear(classes, classes)
        self.two = nn.Linear(classes, classes)
        self.two.weight = self.one.weight
    def forward(self, x):
        return self.two(self.one(x))

def factory(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], classes))

def not_a_module(shape, classes):
    return 5

class WrongShape(Fixed):
    def forward(self, x):
        return self.fc(x).sum(1)

class TwoOutputs(Fixed):
    def forward(self, x):
        return self.fc(x), x

class TorchNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3))
    def forward(self, x):
        return self.body(x)

class TorchDropout(Fixed):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.1)

class Functional(Fixed):
    def forward(self, x):
        return F.dropout(self.fc(x), 0.5, self.training)

class Steep(Fixed):
    def forward(self, x):
        return torch.nan * self.fc(x)

class Counter(Fixed):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
    def forward(self, x):
        self.calls += 1
        return self.fc(x)

class Empty(nn.Module):
    def forward(self, x):
        return x[:, :3]

class Breaks(nn.Module):
    def __init__(self):
        raise RuntimeError("no such luck.\\nSecond line.")

class OddKind(Fixed):
    kind = "convolution"

class Needs(nn.Module):
    def __init__(self, shape, classes, depth):
        super().__init__()
"""


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module beside the user, in the working directory."""
    (tmp_path / "my_nets.py").write_text(SOURCE)
    (tmp_path / "broken_nets.py").write_text("import nothing_of_that_name")
    (tmp_path / "empty_nets.py").write_text("x = 1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    path = list(sys.path)
    yield "my_nets"
    assert sys.path == path
    for name in ("my_nets", "broken_nets", "empty_nets"):
        sys.modules.pop(name, None)


def test_a_module_with_shape_classes_and_settings(nets: str) -> None:
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    model = build(f"{nets}:Net", (6,), 3, {"width": 5})
    assert torch.equal(torch.random.get_rng_state(), state)
    assert (model.name, model.kind, model.settings) == ("my_nets:Net", "other", {"width": 5})
    assert model.layers() == ["one", "norm", "two"]
    assert model.chain() is None
    first, second = model.init(1), build(f"{nets}:Net", (6,), 3, {"width": 5}).init(1)
    assert first["one.weight"].shape == (5, 6)
    assert all(torch.equal(first[name], second[name]) for name in first)
    x = keys.normal(keys.key("x"), (4, 6))
    _, changed = model.train_logits(first, x, weight=torch.ones(4), key=keys.key(1))
    assert set(changed) == {"norm.running_mean", "norm.running_var"}
    stack = {name: torch.stack([first[name], model.init(2)[name]]) for name in first}

    def of(weights: Any, x: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return model.train_logits(weights, x, weight=torch.ones(4), key=key)[0].square().sum()

    draws = torch.stack([keys.key(1), keys.key(2)])
    together = vmap(grad(of))(stack, torch.stack([x, x]), draws)
    torch.testing.assert_close({k: v[0] for k, v in together.items()}, grad(of)(first, x, draws[0]))


def test_other_modules_that_are_accepted(nets: str) -> None:
    fixed = build(f"{nets}:Fixed", (6,), 3)
    assert fixed.logits(fixed.init(0), torch.ones(2, 6)).shape == (2, 3)
    assert build(f"{nets}:factory", (6,), 3).layers() == ["1"]
    assert build(f"{nets}:Conv", (1, 5, 5), 3).kind == "conv"
    series = build(f"{nets}:Series", (5, 2), 3)
    assert series.kind == "recurrent"
    assert build(f"{nets}:Steep", (6,), 3).kind == "other"  # no numbers for the check's inputs, but the same each time
    tied = build(f"{nets}:Tied", (3,), 3)
    assert sorted(tied.trainable) == ["one.bias", "one.weight", "two.bias"]
    weights = tied.init(0)
    doubled = {**weights, "one.weight": 2 * weights["one.weight"]}
    x = torch.ones(1, 3)
    first = x @ doubled["one.weight"].T + doubled["one.bias"]
    expected = first @ doubled["one.weight"].T + doubled["two.bias"]
    torch.testing.assert_close(tied.logits(doubled, x), expected)


@pytest.mark.parametrize(
    ("what", "settings", "sentence"),
    [
        (
            "my_nets:WrongShape",
            {},
            r"must be of shape \(2, 3\), got shape \(2,\)",
        ),
        (
            "my_nets:TwoOutputs",
            {},
            r"model: the output of 'my_nets:TwoOutputs' for a batch \(2, 6\): must be of shape \(2, 3\), got a tuple",
        ),
        (
            "my_nets:TorchNorm",
            {},
            r"layer 'body\.1' of .* is torch\.nn\.BatchNorm1d, .* use potluck\.models\.BatchNorm",
        ),
        (
            "my_nets:TorchDropout",
            {},
            r"layer 'drop' of .* is torch\.nn\.Dropout, .* use potluck\.models\.Dropout",
        ),
        (
            "my_nets:Functional",
            {},
            r"gives other results for the same input and key .* use potluck\.models\.Dropout",
        ),
        ("my_nets:Counter", {}, r"changes 'calls' in place"),
        ("my_nets:Empty", {}, "has no parameters"),
        ("my_nets:Breaks", {}, "making 'my_nets:Breaks' failed with RuntimeError: no such luck"),
        ("my_nets:OddKind", {}, "OddKind.kind: 'convolution' is not known"),
        ("my_nets:Needs", {}, "model.depth: must be set, the constructor of my_nets:Needs needs it"),
        ("my_nets:Net", {"widht": 3}, "settings of my_nets:Net: 'widht' is not known, did you mean 'width'"),
        ("my_nets:Net", {"classes": 9}, "settings of my_nets:Net: 'classes' is not known"),
        ("my_nets:Fixed", {"width": 3}, "settings of my_nets:Fixed: its constructor takes no settings, got 'width'"),
        (
            "my_nets:Conv",
            {},
            r"model: 'my_nets:Conv' failed on a batch of shape \(2, 6\) with RuntimeError",
        ),
        ("my_nets:not_a_module", {}, "model: 'my_nets:not_a_module' must make an nn.Module, got a int"),
        ("my_nets:state", {}, "model: 'my_nets:state': must be a class or function that makes a module, got a Linear"),
        ("my_nets:number", {}, "model: 'my_nets:number': must be a class or function that makes a module, got a int"),
        ("my_nets:Nte", {}, "model in my_nets: 'Nte' is not known, did you mean 'Net'"),
        ("empty_nets:Net", {}, "'empty_nets' has nothing called 'Net'"),
        ("broken_nets:Net", {}, "importing 'broken_nets' of .* failed with ModuleNotFoundError"),
        ("no_such_nets:Net", {}, "importing 'no_such_nets' of .* failed with ModuleNotFoundError"),
        ("my_nets:", {}, "model: must be a name of the catalogue or package.module:Class, got"),
        (":Net", {}, "model: must be a name of the catalogue or package.module:Class, got"),
    ],
)
def test_refusals(nets: str, what: str, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence) as refused:
        build(what, (6,), 3, settings)
    assert "\n" not in str(refused.value)


def test_the_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs" / "models.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    source = next(block for block in blocks if block.startswith("# my_nets.py"))
    use = next(block for block in blocks if "my_nets:" in block)
    (tmp_path / "my_nets.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    try:
        names: dict[str, Any] = {}
        exec(compile(use, str(page), "exec"), names)
        assert names["logits"].shape == (8, 6)
        assert set(names["changed"]) == {"norm.running_mean", "norm.running_var"}
    finally:
        sys.modules.pop("my_nets", None)
