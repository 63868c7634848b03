"""Local training: the fused path is the textbook loop, padding changes nothing, terms are what they say."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers.fleets import made, stacker
from hypothesis import given
from hypothesis import strategies as st
from torch.func import vmap

from potluck import _first_layer, compiled, keys
from potluck._batches import PART, _drawn
from potluck._peak import Peak
from potluck.fleet import Data
from potluck.learn import Pull, Recipe, adam, batches, fit_mixed, plain, row_losses, sgd, training_macs
from potluck.models import build

pytestmark = pytest.mark.quick


def data_of(n: int, features: int = 6, classes: int = 3, capacity: int | None = None, seed: int = 0) -> Data:
    stacked = stacker(made([n], features, classes, seed))([0], capacity or n)
    return Data(stacked.x[0], stacked.y[0], stacked.weight[0])


def shift_for(weights: Any) -> Any:
    return {name: 0.1 * torch.ones_like(value) for name, value in weights.items()}


TERMS = {
    "nothing": lambda w: {},
    "momentum": lambda w: {"momentum": 0.9},
    "decay": lambda w: {"pull": Pull(0.3)},
    "shift": lambda w: {"pull": Pull(0.0, shift_for(w))},
    "both": lambda w: {"pull": Pull(0.3, shift_for(w))},
    "prox": lambda w: {"pull": Pull(0.3, shift_for(w), times=-0.3)},
    "variates": lambda w: {"pull": Pull(0.0, shift_for(w), minus=w)},
    "all with momentum": lambda w: {"pull": Pull(0.3, shift_for(w), times=-0.5, minus=w), "momentum": 0.5},
    "both with momentum": lambda w: {"pull": Pull(0.3, shift_for(w)), "momentum": 0.5},
}


@pytest.fixture(params=["compiled", "stacked"])
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both fast paths: with compiled kernels, where the extra is installed, and with stacked tensors."""
    if request.param == "compiled":
        if not compiled.ready():
            pytest.skip("needs the extra fast")
        yield
        return
    with compiled.off():
        yield


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dual", [True, False])
@pytest.mark.parametrize("terms", list(TERMS))
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("softmax", {}),
        ("svm", {}),
        ("mlp", {"hidden": [5]}),
        ("mlp", {"hidden": [5, 4], "activation": "tanh"}),
    ],
)
def test_the_fused_path_is_the_textbook_loop(
    monkeypatch: pytest.MonkeyPatch, name: str, settings: dict[str, Any], terms: str, dual: bool
) -> None:
    monkeypatch.setattr(_first_layer, "DUAL", dual)
    model = build(name, (40,), 3, settings)
    weights = model.init(3)
    data = data_of(11, features=40)
    options: dict[str, Any] = {
        "key": keys.key(1),
        "lr": 0.05,
        "epochs": 4,
        "batch": 4,
        **TERMS[terms](weights),
    }
    fast = sgd(model, weights, data, **options)
    with plain():
        slow = sgd(model, weights, data, **options)
    for part in weights:
        torch.testing.assert_close(fast[part], slow[part], atol=2e-6, rtol=1e-5)
        assert not torch.equal(fast[part], weights[part])


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("terms", ["nothing", "prox", "all with momentum"])
@pytest.mark.parametrize("only", [("fc1",), ("fc2",), ("fc3",), ("fc1", "fc3"), ("fc2", "fc3"), ("fc2.bias",)])
def test_the_fused_path_moves_only_what_it_may(only: tuple[str, ...], terms: str) -> None:
    """Layers that rest before the first that moves, between two that move, and after the last one."""
    model = build("mlp", (40,), 3, {"hidden": [5, 4]})
    weights = model.init(3)
    moving = frozenset(name for name in weights if name.startswith(only))
    options: dict[str, Any] = {"key": keys.key(1), "lr": 0.05, "epochs": 4, "batch": 4, "only": moving}
    options |= TERMS[terms](weights)
    fast = sgd(model, weights, data_of(11, features=40), **options)
    with plain():
        slow = sgd(model, weights, data_of(11, features=40), **options)
    for part in weights:
        torch.testing.assert_close(fast[part], slow[part], atol=2e-6, rtol=1e-5)
        assert torch.equal(fast[part], weights[part]) is (part not in moving)


@pytest.mark.usefixtures("way")
def test_a_second_training_on_the_same_samples_starts_from_its_own_weights() -> None:
    """Products with the samples are kept for it, unless the samples or the weights were changed in place."""
    model, data = build("mlp", (40,), 3, {"hidden": [5]}), data_of(11, features=40)
    weights = {name: value.clone() for name, value in model.init(3).items()}

    def both() -> Any:
        options: dict[str, Any] = {"key": keys.key(1), "lr": 0.05, "epochs": 4, "batch": 4}
        fast = sgd(model, weights, data, **options)
        with plain():
            return fast["fc1.weight"], sgd(model, weights, data, **options)["fc1.weight"]

    seen = []
    for change in (lambda: None, lambda: weights["fc1.weight"].mul_(0.5), lambda: data.x.mul_(0.5)):
        change()
        fast, slow = both()
        torch.testing.assert_close(fast, slow, atol=2e-6, rtol=1e-5)
        seen.append(fast)
    assert not torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[1], seen[2])


def test_a_compiled_client_does_not_depend_on_its_stack() -> None:
    """The same bits alone, with padding, in a stack, and in a stack that threads divide."""
    if not compiled.ready():
        pytest.skip("needs the extra fast")
    model = build("mlp", (40,), 3, {"hidden": [17, 6]})
    weights = model.init(3)
    sizes = [5, 11, 9, 14, 2]
    stacked = stacker(made(sizes, 40, 3, 0))(list(range(len(sizes))), 16)
    number = torch.tensor([keys.number(i) for i in range(len(sizes))])

    def train(x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, key: torch.Tensor) -> Any:
        return sgd(model, weights, Data(x, y, weight), key=key, lr=0.1, epochs=3, batch=4, momentum=0.5)

    together = vmap(train)(stacked.x, stacked.y, stacked.weight, number)
    with ThreadPoolExecutor(3) as pool, compiled.threads(pool, 3):
        divided = vmap(train)(stacked.x, stacked.y, stacked.weight, number)
    for i, size in enumerate(sizes):
        alone = train(stacked.x[i, :size], stacked.y[i, :size], stacked.weight[i, :size], number[i])
        padded = train(stacked.x[i], stacked.y[i], stacked.weight[i], number[i])
        for name in weights:
            assert torch.equal(together[name][i], divided[name][i])
            assert torch.equal(together[name][i], padded[name])
            if size % 4 == 0:  # a short last batch has the same rows only where the capacity is a multiple
                assert torch.equal(together[name][i], alone[name])


def test_kernels_stand_aside_where_they_must(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as environment:
        environment.setenv("POTLUCK_COMPILED", "0")
        compiled._installed.cache_clear()
        assert not compiled.ready()
    compiled._installed.cache_clear()
    with compiled.off():
        assert not compiled.ready()


@pytest.mark.parametrize("dual", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("name", "settings"), [("softmax", {}), ("mlp", {"hidden": [5, 4], "activation": "tanh"})])
def test_the_fused_pair_is_the_textbook_loop(
    monkeypatch: pytest.MonkeyPatch, name: str, settings: dict[str, Any], share: float, dual: bool
) -> None:
    monkeypatch.setattr(_first_layer, "DUAL", dual)
    model, data = build(name, (40,), 3, settings), data_of(11, features=40)
    given = model.init(3), model.init(4), torch.tensor(share)
    recipe = Recipe(epochs=4, batch=4, lr=0.05)
    fast = fit_mixed(model, *given, data, recipe, key=keys.key(1))
    with plain():
        slow = fit_mixed(model, *given, data, recipe, key=keys.key(1))
    for one, other in zip(fast, slow, strict=True):
        for part in other:
            torch.testing.assert_close(one[part], other[part], atol=2e-6, rtol=1e-5)
    rests = all(torch.equal(fast[1][part], given[1][part]) for part in given[1])
    assert rests is (share == 0.0)  # then the own model has no part in the mix


def test_a_stack_of_pairs_equals_each_client_alone() -> None:
    model, sizes = build("mlp", (6,), 3, {"hidden": [5]}), (9, 4, 6)
    stacked = stacker(made(sizes, features=6))([0, 1, 2], 9)
    common, own, recipe = model.init(0), model.init(1), Recipe(epochs=2, batch=4, lr=0.05)
    number, shares = torch.stack([keys.key(i) for i in range(3)]), torch.tensor([0.1, 0.5, 0.9])

    def train(x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, key: torch.Tensor, share: torch.Tensor) -> Any:
        return fit_mixed(model, common, own, share, Data(x, y, weight), recipe, key=key)

    together = vmap(train)(stacked.x, stacked.y, stacked.weight, number, shares)
    for i, n in enumerate(sizes):
        alone = train(stacked.x[i, :n], stacked.y[i, :n], stacked.weight[i, :n], number[i], shares[i])
        for one, other in zip(together, alone, strict=True):
            for part in other:
                torch.testing.assert_close(one[part][i], other[part], atol=1e-5, rtol=1e-5)


def test_the_dual_form_is_taken_where_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    make = _first_layer.Dual.__init__
    monkeypatch.setattr(_first_layer.Dual, "__init__", lambda self, *given: (taken.append(1), make(self, *given))[1])
    model = build("mlp", (200,), 3, {"hidden": [16]})
    for epochs in (1, 4):
        with compiled.off():
            sgd(model, model.init(0), data_of(8, features=200), key=keys.key(0), lr=0.1, epochs=epochs, batch=4)
    assert taken == [1]  # four epochs, not one


@pytest.mark.parametrize("train_by", [sgd, adam])
@pytest.mark.parametrize(
    ("name", "settings"), [("softmax", {}), ("mlp", {}), ("mlp", {"hidden": [8], "dropout": 0.3}), ("gru", {})]
)
def test_a_stack_equals_each_client_alone(name: str, settings: dict[str, Any], train_by: Any) -> None:
    """Also where each step draws: sizes 9, 4 and 6 give unlike numbers of batches, and two epochs let them add up."""
    shape = (5, 3) if name == "gru" else (6,)
    model = build(name, shape, 3, settings)
    sizes = (9, 4, 6)
    clients = [(x.reshape(-1, *shape), y) for x, y in made(sizes, features=15 if name == "gru" else 6)]
    stacked = stacker(clients)([0, 1, 2], 9)
    weights = model.init(0)
    number = torch.stack([keys.key(i) for i in range(3)])

    def train(x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, key: torch.Tensor) -> Any:
        return train_by(model, weights, Data(x, y, weight), key=key, lr=0.01, epochs=2, batch=4)

    together = vmap(train)(stacked.x, stacked.y, stacked.weight, number)
    for i, n in enumerate(sizes):
        alone = train(stacked.x[i, :n], stacked.y[i, :n], stacked.weight[i, :n], number[i])
        for part in weights:
            torch.testing.assert_close(together[part][i], alone[part], atol=1e-5, rtol=1e-5)


@given(n=st.integers(1, 30), padding=st.integers(0, 20), batch=st.integers(1, 12), epochs=st.integers(1, 3))
def test_every_epoch_visits_every_sample_once(n: int, padding: int, batch: int, epochs: int) -> None:
    weight = torch.cat([torch.ones(n), torch.zeros(padding)])
    data = Data(torch.zeros(n + padding, 1), torch.zeros(n + padding, dtype=torch.int64), weight)
    rows, counts = batches(data, batch, epochs, keys.key(7))
    per_epoch = rows.shape[0] // epochs
    for epoch in range(epochs):
        part = slice(epoch * per_epoch, (epoch + 1) * per_epoch)
        visited = rows[part][counts[part] > 0]
        assert sorted(visited.tolist()) == list(range(n))


@pytest.mark.parametrize(
    ("clients", "n", "batch", "epochs"), [(5, 7, 3, 2), (2, 1, 4, 3), (3, 256, 40, 1), (2, 257, 40, 1)]
)
def test_compiled_orders_are_those_of_the_keys(clients: int, n: int, batch: int, epochs: int) -> None:
    if not compiled.ready():
        pytest.skip("the extra `fast` is not installed")
    numbers = torch.tensor([keys.number("order", i) for i in range(clients)])
    real = keys.bernoulli(keys.key(3), torch.full((clients, n), 0.7))
    drawn = _drawn(real, batch, epochs, numbers)
    with compiled.off():
        expected = _drawn(real, batch, epochs, numbers)
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(drawn, expected, strict=True))


def test_equal_numbers_are_left_to_the_sort() -> None:
    if not compiled.ready():
        pytest.skip("the extra `fast` is not installed")
    ranked, order = compiled.kernels("orders").ranked, np.zeros(4, np.int64)
    assert ranked(np.array([30, -5, 1 << 62, 7]), order)
    assert order.tolist() == [1, 3, 0, 2]
    assert not ranked(np.array([30, 7, 30, 7]), order)


@given(padding=st.integers(0, 20))
def test_padding_changes_nothing(padding: int) -> None:
    model = build("mlp", (6,), 3, {"hidden": [4]})
    weights = model.init(0)

    def trained(capacity: int) -> Any:
        return sgd(model, weights, data_of(7, capacity=capacity), key=keys.key(0), lr=0.1, epochs=2, batch=3)

    bare, padded = trained(7), trained(7 + padding)
    for part in weights:
        torch.testing.assert_close(bare[part], padded[part], atol=1e-6, rtol=1e-5)


def test_one_step_by_hand() -> None:
    """Softmax regression, one batch of everything: w - lr · X^T (p - y) / n."""
    model = build("softmax", (6,), 3, {})
    weights = model.init(0)
    data = data_of(10)
    new = sgd(model, weights, data, key=keys.key(0), lr=0.5, epochs=1, batch=10)
    error = torch.softmax(data.x @ weights["fc.weight"].T + weights["fc.bias"], -1) - F.one_hot(data.y, 3)
    torch.testing.assert_close(new["fc.weight"], weights["fc.weight"] - 0.5 * error.T @ data.x / 10)
    torch.testing.assert_close(new["fc.bias"], weights["fc.bias"] - 0.5 * error.mean(0))


def test_only_the_named_weights_move() -> None:
    model = build("mlp", (6,), 3, {"hidden": [4]})
    weights = model.init(0)
    last = model.layers()[-1]
    only = frozenset(name for name in model.trainable if name.startswith(last))
    new = sgd(model, weights, data_of(8), key=keys.key(0), lr=0.1, only=only)
    moved = {name for name in weights if not torch.equal(new[name], weights[name])}
    assert moved == only


def test_losses_of_many_rows_take_the_memory_of_a_part() -> None:
    model = build("mlp", (6,), 3, {"hidden": [64]})
    weights = model.init(0)
    few, many = data_of(PART), data_of(8 * PART)
    peaks = []
    for data in (few, many):
        with Peak((data.x, data.y, data.weight, *weights.values())) as peak:
            found = row_losses(model, weights, data)
        peaks.append(peak.peak)
        whole = model.losses(model.logits(weights, data.x), data.y)
        torch.testing.assert_close(found, whole)
    assert peaks[1] < 2 * peaks[0]  # all rows at once would take eight times as much


def test_macs_of_a_dense_net_by_hand() -> None:
    # forward 6·4 + 4·3; backward: weight gradients 6·4 + 4·3 and the hidden layer's input gradient 4·3
    model = build("mlp", (6,), 3, {"hidden": [4]})
    assert training_macs(model, model.init(0), data_of(5)) == (24 + 12) + (24 + 12) + 12


def test_a_private_loss_replaces_the_models_own() -> None:
    model = build("softmax", (6,), 3, {})
    weights = model.init(0)

    def towards_zero(w: Any, batch: Data, key: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return sum((value**2).sum() for value in w.values()) / 2, {}

    new = sgd(model, weights, data_of(4), key=keys.key(0), lr=0.1, batch=4, loss=towards_zero)
    torch.testing.assert_close(new["fc.weight"], 0.9 * weights["fc.weight"])
