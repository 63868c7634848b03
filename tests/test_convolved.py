"""Kernels of convolutional networks: they train as the textbook loop, and a client does not depend on its stack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest import mock

import pytest
import torch
from torch.func import vmap

from potluck import _convolved, compiled, keys
from potluck.compiled import forms, images
from potluck.compiled.blocks import DENSE, LISTS, PICKS
from potluck.fleet import Data
from potluck.learn import Pull, adam, plain, sgd
from potluck.models import Model, build
from potluck.tasks import Regression

pytestmark = [
    pytest.mark.quick,
    pytest.mark.skipif(not compiled.ready(), reason="needs the extra fast"),
]

NETS: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "padded": ("cnn", (1, 9, 10), {"channels": [3, 4]}),
    "colours, a hidden layer, tanh": ("cnn", (3, 8, 8), {"channels": [5, 18], "hidden": [7], "activation": "tanh"}),
    "five by five": ("cnn5", (1, 20, 20), {"channels": [3, 5]}),
    "stride, one block": ("cnn", (2, 11, 11), {"channels": [6], "stride": 2}),
    "no pooling": ("cnn", (1, 5, 5), {"channels": [2, 3], "pool": 1}),
    "a plane": ("cnn", (8, 12), {"channels": [2]}),
    "series": ("cnn1d", (21, 3), {}),
    "windows of three by three, some rows left over": ("cnn", (2, 17, 11), {"channels": [3, 20], "pool": 3}),
    "long windows": ("cnn", (1, 9, 9), {"channels": [34, 3], "kernel": 7, "padding": 3}),
    "many colours": ("cnn", (9, 8, 8), {"channels": [33]}),
    "series with wide windows": ("cnn1d", (33, 2), {"channels": [4, 3], "pool": 3, "kernel": 3}),
    "series with a stride": ("cnn1d", (40, 2), {"channels": [3, 4, 5], "stride": 2, "pool": 1, "kernel": 3}),
}


def model_of(net: str) -> Model:
    name, shape, settings = NETS[net]
    return build(name, shape, 3, settings)


def data_of(model: Model, n: int = 7) -> Data:
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(n, *model.shape, generator=draw)
    return Data(x, torch.randint(0, 3, (n,), generator=draw), torch.ones(n))


WAYS: dict[str, Any] = {
    "nothing": lambda w: {},
    "momentum": lambda w: {"momentum": 0.9},
    "clip": lambda w: {"clip": 0.1},
    "prox": lambda w: {"pull": Pull(0.3, w, times=-0.3)},
    "variates with momentum": lambda w: {"pull": Pull(0.2, w, minus=w), "momentum": 0.5},
}


def compare(model: Model, train: Any, atol: float = 3e-6) -> None:
    weights, data = model.init(2), data_of(model)
    assert _convolved.net_of(model, weights, data) is not None
    fast = train(weights, data)
    with plain():
        slow = train(weights, data)
    for part in weights:
        torch.testing.assert_close(fast[part], slow[part], atol=atol, rtol=1e-5)
        assert not torch.equal(fast[part], weights[part])


@pytest.mark.parametrize("net", NETS)
def test_kernels_train_as_the_textbook_loop(net: str) -> None:
    model = model_of(net)
    compare(model, lambda w, data: sgd(model, w, data, key=keys.key(3), lr=0.05, epochs=2, batch=3))


@pytest.fixture
def forced() -> Iterator[Callable[[int], None]]:
    """Give all convolutions this form of the gradient, where they can take it."""
    images._placed.cache_clear()

    def form_of(kind: int, block: forms.Block, first: bool, width: int) -> forms.Form:
        found = forms.possible(block, first, width)
        return next((form for form in found if form.kind == kind), found[0])

    with ExitStack() as stack:
        yield lambda kind: stack.enter_context(mock.patch.object(images, "form_of", partial(form_of, kind)))
    images._placed.cache_clear()


@pytest.mark.parametrize("kind", [DENSE, LISTS, PICKS])
@pytest.mark.parametrize("net", NETS)
def test_all_forms_train_alike(net: str, kind: int, forced: Callable[[int], None]) -> None:
    forced(kind)
    model = model_of(net)
    compare(model, lambda w, data: sgd(model, w, data, key=keys.key(3), lr=0.05, epochs=2, batch=3))


@pytest.mark.parametrize("kind", [DENSE, LISTS, PICKS])
@pytest.mark.parametrize("pool", [2, 3])
def test_of_equal_values_the_first_one_is_the_largest(pool: int, kind: int, forced: Callable[[int], None]) -> None:
    """As PyTorch has it. All numbers are multiples of 1/4, so that sums are exact; most outputs are negative."""
    forced(kind)
    model = build("cnn", (1, 12, 12), 3, {"channels": [4, 5], "pool": pool})
    draw = torch.Generator().manual_seed(6)
    weights = {
        name: torch.randint(-2, 3, value.shape, generator=draw) / 4.0 - (0.25 if name.startswith("conv1.b") else 0.0)
        for name, value in model.init(0).items()
    }
    x = torch.randint(-1, 2, (5, 1, 12, 12), generator=draw).float()
    x[0] = -1.0  # all windows within the borders are equal
    x[1] = 0.0
    data = Data(x, torch.arange(5) % 3, torch.ones(5))
    fast = sgd(model, weights, data, key=keys.key(3), lr=0.25, batch=5)
    with plain():
        slow = sgd(model, weights, data, key=keys.key(3), lr=0.25, batch=5)
    for part in weights:
        torch.testing.assert_close(fast[part], slow[part], atol=3e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", [DENSE, LISTS, PICKS])
def test_what_is_not_a_number_is_not_lost(kind: int, forced: Callable[[int], None]) -> None:
    forced(kind)
    model = model_of("padded")
    weights, data = model.init(2), data_of(model)
    data.x[3, 0, 5, 4] = float("nan")
    fast = sgd(model, weights, data, key=keys.key(3), lr=0.05, batch=3)
    assert not all(bool(torch.isfinite(value).all()) for value in fast.values())


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("batch", [1, 4, 7, 16])
def test_the_last_mini_batch_may_be_smaller(batch: int, blocks: int) -> None:
    model = build("cnn", (1, 9, 10), 3, {"channels": [3, 4][:blocks]})
    compare(model, lambda w, data: sgd(model, w, data, key=keys.key(3), lr=0.05, batch=batch))


def test_the_rule_leaves_out_what_pooling_makes_zero() -> None:
    image = {"height": 12, "width": 12, "stride": (1, 1), "padding": (0, 0)}
    second = forms.Block(channels=32, outputs=64, kernel_y=5, kernel_x=5, pool=(2, 2), **image)  # type: ignore[arg-type]
    assert forms.form_of(second, False, 16).kind == forms.form_of(second, False, 8).kind == LISTS
    assert forms.form_of(second._replace(pool=(1, 1)), False, 16).kind == DENSE
    first = second._replace(channels=1)
    assert forms.form_of(first, True, 16).kind == PICKS
    assert all(form.kind != PICKS for form in forms.possible(first, True, 8))  # vectors too short to pick from
    short = second._replace(channels=4, outputs=16, height=1, kernel_y=1, kernel_x=3, pool=(1, 2))
    assert forms.form_of(short, False, 16).kind == DENSE


@pytest.mark.parametrize("way", WAYS)
def test_terms_are_those_of_the_textbook_loop(way: str) -> None:
    model = model_of("padded")
    given = {"key": keys.key(3), "lr": 0.05, "epochs": 2, "batch": 3}
    compare(model, lambda w, data: sgd(model, w, data, **given, **WAYS[way](w)))


def test_adam_is_that_of_the_textbook_loop() -> None:
    model = model_of("padded")
    compare(model, lambda w, data: adam(model, w, data, key=keys.key(3), lr=0.01, epochs=2, batch=3), atol=2e-4)


def test_numbers_are_fitted_too() -> None:
    name, shape, settings = NETS["padded"]
    model = build(name, shape, 2, settings, Regression(centre=(0.5, 1.0), spread=(2.0, 1.0)))
    weights, data = model.init(2), data_of(model)
    data = Data(data.x, torch.randn(7, 2, generator=torch.Generator().manual_seed(5)), data.weight)
    fast = sgd(model, weights, data, key=keys.key(3), lr=0.05, batch=3)
    with plain():
        slow = sgd(model, weights, data, key=keys.key(3), lr=0.05, batch=3)
    for part in weights:
        torch.testing.assert_close(fast[part], slow[part], atol=3e-6, rtol=1e-5)


def test_only_what_is_named_moves() -> None:
    model = model_of("colours, a hidden layer, tanh")
    weights, data = model.init(2), data_of(model)
    moving = frozenset(name for name in weights if name.startswith("conv2"))
    fast = sgd(model, weights, data, key=keys.key(3), lr=0.05, batch=3, only=moving)
    with plain():
        slow = sgd(model, weights, data, key=keys.key(3), lr=0.05, batch=3, only=moving)
    for part in weights:
        torch.testing.assert_close(fast[part], slow[part], atol=3e-6, rtol=1e-5)
        assert torch.equal(fast[part], weights[part]) is (part not in moving)


@pytest.mark.parametrize("net", ["padded", "series"])
def test_a_client_does_not_depend_on_its_stack(net: str) -> None:
    """The same bits alone, in a stack, and in a stack that threads divide."""
    model = model_of(net)
    weights, clients = model.init(2), 4
    draw = torch.Generator().manual_seed(4)
    x, y = torch.randn(clients, 6, *model.shape, generator=draw), torch.randint(0, 3, (clients, 6), generator=draw)
    number = torch.tensor([keys.number(i) for i in range(clients)])
    weight = torch.ones(clients, 6)
    weight[1, 4:] = 0.0  # padding

    def train(x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, key: torch.Tensor) -> Any:
        return sgd(model, weights, Data(x, y, weight), key=key, lr=0.05, epochs=2, batch=4)

    together = vmap(train)(x, y, weight, number)
    with ThreadPoolExecutor(3) as pool, compiled.threads(pool, 3):
        divided = vmap(train)(x, y, weight, number)
    for i in range(clients):
        alone = train(x[i], y[i], weight[i], number[i])
        for name in weights:
            assert torch.equal(together[name][i], divided[name][i])
            assert torch.equal(together[name][i], alone[name])


@pytest.mark.parametrize(
    ("name", "shape", "settings"),
    [
        ("cnn", (1, 8, 8), {"norm": "group", "groups": 4}),
        ("cnn", (1, 8, 8), {"dropout": 0.3}),
        ("compact", (1, 8, 8), {}),
    ],
)
def test_kernels_stand_aside_for_networks_they_do_not_know(
    name: str, shape: tuple[int, ...], settings: dict[str, Any]
) -> None:
    model = build(name, shape, 3, settings)
    assert _convolved.net_of(model, model.init(0), data_of(model)) is None


def test_narrow_sub_models_are_known_by_their_weights() -> None:
    """A sub-model has fewer channels than the module it came from."""
    model = model_of("padded")
    weights, data = dict(model.init(2)), data_of(model)
    cut = {"conv1.weight": weights["conv1.weight"][:2], "conv1.bias": weights["conv1.bias"][:2]}
    cut["conv2.weight"] = weights["conv2.weight"][:, :2]
    narrow = weights | {name: value.clone() for name, value in cut.items()}
    net = _convolved.net_of(model, narrow, data)
    assert net is not None
    assert net.blocks[0].outputs == net.blocks[1].channels == 2
    assert _convolved.net_of(model, weights | {"conv1.weight": cut["conv1.weight"]}, data) is None
