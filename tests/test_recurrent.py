"""Compiled training of recurrent networks: the numbers of the textbook loop, the same bits however it is divided."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch.func import vmap

from potluck import _recurrent, compiled, keys
from potluck.fleet import Data
from potluck.learn import Pull, adam, plain, sgd
from potluck.models import build
from potluck.tasks import Regression

pytestmark = pytest.mark.quick

CFC = {"hidden": 5, "backbone": 7, "head": 6}
NETS: dict[str, tuple[str, dict[str, Any]]] = {
    "cfc": ("cfc", CFC),
    "cfc, gated, wide": ("cfc", {"hidden": 17, "backbone": 20, "head": 16, "gate": "gated"}),
    "cfc, f of one layer": ("cfc", {**CFC, "layers": (1, 2, 2), "gate": "gated"}),
    "cfc, heads of one layer": ("cfc", {**CFC, "layers": (1, 1, 1)}),
    "cfc, leaky": ("cfc", {**CFC, "gate": "leaky"}),
    "gru": ("gru", {"hidden": 5}),
    "lstm": ("lstm", {"hidden": 18}),
    "rnn": ("rnn", {"hidden": 5}),
}


def sequences(n: int = 11, timed: bool = False, ragged: bool = False, capacity: int = 0, seed: int = 0) -> Data:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(max(n, capacity), 9, 3, generator=draw)
    y = torch.randint(0, 4, (len(x),), generator=draw)
    t = torch.rand(len(x), 9, generator=draw).add(0.2).cumsum(1) if timed else None
    length = torch.randint(0, 10, (len(x),), generator=draw) if ragged else None
    return Data(x, y, (torch.arange(len(x)) < n).float(), t, length)


def shift_for(weights: Any) -> Any:
    return {name: 0.1 * torch.ones_like(value) for name, value in weights.items()}


WAYS: dict[str, Any] = {
    "sgd": lambda w: (sgd, {}),
    "momentum": lambda w: (sgd, {"momentum": 0.9}),
    "clipped": lambda w: (sgd, {"clip": 0.3, "momentum": 0.5}),
    "decay": lambda w: (sgd, {"pull": Pull(0.3)}),
    "prox": lambda w: (sgd, {"pull": Pull(0.3, shift_for(w), times=-0.3), "clip": 0.3}),
    "variates": lambda w: (sgd, {"pull": Pull(0.0, shift_for(w), minus=w)}),
    "adam": lambda w: (adam, {"clip": 0.5}),
    "some": lambda w: (sgd, {"only": frozenset(("fc.weight", next(iter(w)))), "clip": 0.3}),
    "adam of some": lambda w: (adam, {"only": frozenset(("fc.weight", next(iter(w))))}),
}


@pytest.fixture(autouse=True)
def _numba(request: pytest.FixtureRequest) -> None:
    if "without_kernels" not in request.node.name and not compiled.ready():
        pytest.skip("needs the extra fast")


def agree(model: Any, data: Data, train_by: Any, options: dict[str, Any]) -> None:
    weights = model.init(3)
    assert _recurrent.net_of(model, weights, data) is not None
    # Adam divides by the size of a gradient, so that the rounding of a small one weighs as much as a large one's.
    near = 2e-4 if train_by is adam else 3e-5
    options = {"key": keys.key(1), "lr": 0.005 if train_by is adam else 0.01, "epochs": 3, "batch": 4, **options}
    fast = train_by(model, weights, data, **options)
    with plain():
        slow = train_by(model, weights, data, **options)
    assert list(fast) == list(slow)
    moving = options.get("only") or model.trainable
    for name in weights:
        torch.testing.assert_close(fast[name], slow[name], atol=near, rtol=near)
        assert torch.equal(fast[name], weights[name]) is (name not in moving)


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("net", list(NETS))
def test_kernels_train_as_the_textbook_loop(net: str, way: str) -> None:
    name, settings = NETS[net]
    model = build(name, (9, 3), 4, settings)
    agree(model, sequences(), *WAYS[way](model.init(3)))


@pytest.mark.parametrize("net", ["cfc", "cfc, gated, wide", "cfc, f of one layer", "cfc, leaky", "gru", "lstm"])
def test_kernels_read_times_and_lengths(net: str) -> None:
    name, settings = NETS[net]
    model = build(name, (9, 3), 4, {**settings, **({"interval": 0.5} if name == "cfc" else {})})
    agree(model, sequences(timed=name == "cfc", ragged=True), sgd, {"clip": 1.0})


@pytest.mark.parametrize("net", ["cfc", "gru"])
def test_sequences_may_be_shorter_than_the_models(net: str) -> None:
    name, settings = NETS[net]
    data = sequences()
    agree(build(name, (9, 3), 4, settings), Data(data.x[:, :7].contiguous(), data.y, data.weight), sgd, {})


def test_values_that_are_no_series_are_read_one_by_one() -> None:
    data = sequences()
    agree(build("cfc", (9, 3, 1), 4, CFC), Data(data.x.unsqueeze(-1), data.y, data.weight), sgd, {})


def test_kernels_fit_numbers_too() -> None:
    model = build("gru", (9, 3), 2, {"hidden": 5}, Regression(centre=(0.5, 1.0), spread=(2.0, 1.0)))
    data = sequences()
    agree(model, Data(data.x, torch.randn(11, 2), data.weight), sgd, {})


@pytest.mark.parametrize("net", ["cfc", "lstm"])
def test_a_client_does_not_depend_on_its_stack(net: str) -> None:
    """The same bits alone, in a stack, and in a stack that threads divide; padding changes nothing."""
    name, settings = NETS[net]
    model = build(name, (9, 3), 4, settings)
    weights, sizes = model.init(3), [5, 12, 9, 3]
    clients = [sequences(n, capacity=12, seed=i) for i, n in enumerate(sizes)]
    x, y, weight = (torch.stack([getattr(data, part) for data in clients]) for part in ("x", "y", "weight"))
    number = torch.tensor([keys.number(i) for i in range(len(sizes))])

    def train(x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, key: torch.Tensor) -> Any:
        return sgd(model, weights, Data(x, y, weight), key=key, lr=0.1, epochs=2, batch=4, clip=1.0)

    together = vmap(train)(x, y, weight, number)
    with ThreadPoolExecutor(3) as pool, compiled.threads(pool, 3):
        divided = vmap(train)(x, y, weight, number)
    for i in range(len(sizes)):
        alone = train(x[i], y[i], weight[i], number[i])
        for part in weights:
            assert torch.equal(together[part][i], divided[part][i])
            assert torch.equal(together[part][i], alone[part])


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("cfc", {**CFC, "activation": "silu"}),
        ("gru", {"hidden": 5, "layers": 2}),
        ("gru", {"hidden": 5, "dropout": 0.2}),
        ("gru", {"hidden": 256}),
        ("ltc", {"hidden": 5}),
        ("bilstm", {"hidden": 5}),
    ],
)
def test_kernels_stand_aside_for_networks_they_do_not_know(name: str, settings: dict[str, Any]) -> None:
    model = build(name, (9, 3), 4, settings)
    assert _recurrent.net_of(model, model.init(0), sequences()) is None


@pytest.mark.parametrize("missing", ["numba", "switched off"])
def test_without_kernels_stacked_tensors_do_the_same_without_a_word(
    missing: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Warnings are errors in these tests."""
    if missing == "numba":
        monkeypatch.setitem(sys.modules, "numba", None)  # import numba now raises ImportError
    else:
        monkeypatch.setenv("POTLUCK_COMPILED", "0")
    compiled._installed.cache_clear()
    try:
        for name, shape in (("gru", (9, 3)), ("cfc", (9, 3)), ("mlp", (27,))):
            model, data = build(name, shape, 4), sequences()
            data = Data(data.x.reshape(-1, *shape), data.y, data.weight)
            options: dict[str, Any] = {"key": keys.key(1), "lr": 0.01, "batch": 4}
            here = sgd(model, model.init(0), data, **options)
            with compiled.off():
                there = sgd(model, model.init(0), data, **options)
            assert all(torch.equal(here[part], there[part]) for part in there)
    finally:
        compiled._installed.cache_clear()
    assert capfd.readouterr() == ("", "")


def test_loading_kernels_is_said_once() -> None:
    heard: list[str] = []
    compiled.kernels.cache_clear()
    with compiled.telling(heard.append):
        for _ in range(2):
            model = build("gru", (9, 3), 4, {"hidden": 5})
            sgd(model, model.init(0), sequences(), key=keys.key(0), lr=0.1)
    assert len(heard) == 1
    assert "the first time takes up to half a minute" in heard[0]


def test_kernels_stand_aside_for_other_numbers_and_without_numba() -> None:
    model = build("gru", (9, 3), 4, {"hidden": 5})
    weights, data = model.init(0), sequences()
    assert _recurrent.net_of(model, {name: w.double() for name, w in weights.items()}, data) is None
    with compiled.off():
        assert _recurrent.net_of(model, weights, data) is None
