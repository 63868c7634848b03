"""Models as functions of their weights: initial weights, stacks, buffers, losses, threads."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad, vmap

from potluck import keys
from potluck.models import Layer, Model, Params, build

CASES: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("softmax", (5,), {}),
    ("svm", (5,), {}),
    ("mlp", (4, 3), {"hidden": [6, 5], "activation": "tanh"}),
    ("mlp", (4, 3), {"hidden": [6], "dropout": 0.3}),
    ("cnn", (1, 8, 8), {"channels": [2, 4]}),
    ("cnn", (1, 8, 8), {"channels": [4, 4], "norm": "batch", "hidden": [6], "dropout": 0.2}),
    ("cnn5", (2, 18, 18), {"channels": [2, 2], "norm": "group", "groups": 2}),
    ("convnet", (20, 3), {"width": 4, "features": 6, "norm": "batch", "classifier": "medium"}),
    ("gru", (5, 2), {"hidden": 4}),
    ("lstm", (5, 2), {"hidden": 4, "layers": 2}),
    ("rnn", (5, 2), {"hidden": 4}),
    ("resnet18", (1, 8, 8), {"width": 2, "norm": "layer"}),
    ("resnet18", (3, 8, 8), {"width": 2, "norm": "none"}),
]
IDS = [f"{name}-{i}" for i, (name, _, _) in enumerate(CASES)]


def made(case: tuple[str, tuple[int, ...], dict[str, Any]]) -> Model:
    name, shape, settings = case
    return build(name, shape, 3, settings)


def objective(model: Model) -> Any:
    def of(weights: Params, x: Tensor, y: Tensor, weight: Tensor, key: Tensor) -> tuple[Tensor, Params]:
        logits, changed = model.train_logits(weights, x, weight=weight, key=key)
        return (model.losses(logits, y) * weight).sum() / weight.sum(), changed

    return of


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_stacked_gradients_equal_one_by_one(case: tuple[str, tuple[int, ...], dict[str, Any]]) -> None:
    model = made(case)
    models = [model.init(seed) for seed in range(3)]
    stack = {name: torch.stack([m[name] for m in models]) for name in models[0]}
    x = keys.normal(keys.key("x"), (3, 4, *model.shape))
    y = torch.tensor([[0, 1, 2, 0], [1, 1, 1, 1], [2, 0, 2, 0]])
    weight = torch.tensor([[1.0, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]])
    draws = torch.stack([keys.key("draw", i) for i in range(3)])
    one = grad(objective(model), has_aux=True)
    together, changed = vmap(one)(stack, x, y, weight, draws)
    assert set(together) == set(models[0])
    for i in range(3):
        alone, alone_changed = one(models[i], x[i], y[i], weight[i], draws[i])
        torch.testing.assert_close({k: v[i] for k, v in together.items()}, alone, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close({k: v[i] for k, v in changed.items()}, alone_changed, atol=1e-5, rtol=1e-5)
    assert any(torch.any(value != 0) for name, value in together.items() if name in model.trainable)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_initial_weights_depend_on_the_seed_only(case: tuple[str, tuple[int, ...], dict[str, Any]]) -> None:
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    model = made(case)
    first = model.init(7)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(2)
    second = made(case).init(7)
    assert list(first) == list(second)
    assert all(torch.equal(first[name], second[name]) for name in first)
    other = model.init(8)
    assert any(not torch.equal(first[name], other[name]) for name in first)
    next(iter(first.values())).add_(1.0)
    assert not torch.equal(next(iter(first.values())), next(iter(model.init(7).values())))


def test_evaluation_does_not_depend_on_the_batch_and_training_hands_back_its_statistics() -> None:
    model = build("cnn", (1, 8, 8), 3, {"channels": [2, 4], "norm": "batch"})
    weights = model.init(0)
    kept = {name: value.clone() for name, value in weights.items()}
    x = keys.normal(keys.key("x"), (4, 1, 8, 8)) + 1.0
    torch.testing.assert_close(model.logits(weights, x)[:1], model.logits(weights, x[:1]))
    _, changed = model.train_logits(weights, x, weight=torch.ones(4))
    assert set(changed) == set(weights) - model.trainable
    assert set(changed) == {f"norm{i}.running_{s}" for i in (1, 2) for s in ("mean", "var")}
    assert all(torch.equal(weights[name], kept[name]) for name in weights)
    assert not torch.equal(model.logits({**weights, **changed}, x), model.logits(weights, x))
    padded = torch.cat([x, torch.full((2, 1, 8, 8), 50.0)])
    _, with_padding = model.train_logits(weights, padded, weight=torch.tensor([1.0, 1, 1, 1, 0, 0]))
    torch.testing.assert_close(with_padding, changed)


def test_no_buffers_no_changes() -> None:
    model = build("mlp", (3,), 2)
    assert model.train_logits(model.init(0), torch.ones(2, 3))[1] == {}


def test_hinge_loss_by_hand() -> None:
    model = build("svm", (2,), 3)
    logits = torch.tensor([[2.0, 0.0, -1.0], [0.5, 0.0, 0.0], [0.0, 1.0, 3.0]])
    losses = model.losses(logits, torch.tensor([0, 0, 1]))
    assert losses.tolist() == [0.0, 0.5, 3.0]  # margin kept; 1 + 0 - 0.5; 1 + 3 - 1
    slope = grad(lambda s: model.losses(s, torch.tensor([0, 0, 1])).sum())(logits)
    assert slope[0].tolist() == [0.0, 0.0, 0.0]
    assert slope[2].tolist() == [0.0, -1.0, 1.0]


def test_cross_entropy_per_sample() -> None:
    model = build("softmax", (2,), 3)
    logits, y = keys.normal(keys.key("logits"), (4, 3)), torch.tensor([0, 1, 2, 1])
    torch.testing.assert_close(model.losses(logits, y), F.cross_entropy(logits, y, reduction="none"))


def test_the_chain_of_a_dense_network_is_the_network() -> None:
    model = build("mlp", (2, 3), 4, {"hidden": [5, 6], "activation": "tanh"})
    assert model.chain() == [
        Layer("fc1.weight", "fc1.bias", "tanh"),
        Layer("fc2.weight", "fc2.bias", "tanh"),
        Layer("fc3.weight", "fc3.bias", "none"),
    ]
    weights = model.init(3)
    x = keys.normal(keys.key("x"), (4, 2, 3))
    out = x.flatten(1)
    for layer in model.chain() or []:
        assert layer.bias is not None
        out = F.linear(out, weights[layer.weight], weights[layer.bias])
        out = torch.tanh(out) if layer.activation == "tanh" else out
    torch.testing.assert_close(model.logits(weights, x), out)
    assert build("svm", (3,), 2).chain() == [Layer("fc.weight", "fc.bias", "none")]
    assert build("mlp", (3,), 2, {"dropout": 0.1}).chain() is None
    assert build("cnn", (1, 8, 8), 2).chain() is None
    assert build("gru", (4, 2), 2).chain() is None


def test_layers_from_input_to_output() -> None:
    assert build("mlp", (3,), 2).layers() == ["fc1", "fc2"]
    assert build("cnn", (1, 8, 8), 2, {"norm": "group"}).layers() == [
        "conv1",
        "norm1",
        "conv2",
        "norm2",
        "fc",
    ]
    assert build("gru", (4, 2), 2, {"layers": 2}).layers() == ["gru1", "gru2", "fc"]
    convnet = build("convnet", (128, 9), 6, {"classifier": "large"}).layers()
    assert convnet[:2] == ["conv1", "norm1"]
    assert convnet[-3:] == ["norm6", "fc1", "fc2"]


def test_missing_or_unknown_weights_are_not_replaced_by_others() -> None:
    model = build("mlp", (3,), 2)
    weights = model.init(0)
    del weights["fc2.bias"]
    with pytest.raises(RuntimeError, match=r"fc2\.bias"):
        model.logits(weights, torch.ones(1, 3))


@pytest.mark.parametrize("name", ["mlp", "gru"])
def test_threads_do_not_disturb_each_other(name: str) -> None:
    model = build(name, (6, 2), 3)
    x = keys.normal(keys.key("x"), (2, 6, 2))
    seeds = range(4)
    alone = [model.logits(model.init(seed), x) for seed in seeds]
    wrong: list[int] = []

    def work(seed: int) -> None:
        for _ in range(30):
            weights = model.init(seed)
            if not torch.equal(model.logits(weights, x), alone[seed]):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in seeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_thread_may_make_its_first_call_inside_a_transform() -> None:
    model = build("cnn", (1, 8, 8), 3, {"channels": [2, 2], "norm": "batch"})
    weights = model.init(0)
    stack = {name: torch.stack([value, value]) for name, value in weights.items()}
    x = keys.normal(keys.key("x"), (2, 4, 1, 8, 8))
    results: list[Tensor] = []

    def work() -> None:
        of = vmap(grad(lambda w, x: model.train_logits(w, x)[0].sum()))
        results.append(of(stack, x)["fc.weight"][0])
        results.append(model.logits(weights, x[0]))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.testing.assert_close(results[1], model.logits(weights, x[0]))


def test_a_model_travels_to_another_process_by_its_recipe() -> None:
    model = build("mlp", (3,), 2, {"hidden": [4]})
    # What a worker pool does with its arguments; no bytes from elsewhere are read.
    twin = pickle.loads(pickle.dumps(model))  # noqa: S301
    assert (twin.name, twin.shape, twin.classes, twin.settings) == ("mlp", (3,), 2, model.settings)
    assert torch.equal(twin.init(1)["fc1.weight"], model.init(1)["fc1.weight"])


def test_convolutions_stay_channels_last() -> None:
    model = build("cnn5", (1, 20, 20), 3, {"norm": "group"})
    seen: dict[str, bool] = {}

    def note(name: str) -> Any:
        def hook(_module: object, _inputs: object, out: Tensor) -> None:
            seen[name] = out.is_contiguous(memory_format=torch.channels_last)

        return hook

    for name in ("conv1", "norm1", "conv2", "norm2"):
        model.module.get_submodule(name).register_forward_hook(note(name))
    weights = {
        name: value.to(memory_format=torch.channels_last) if value.dim() == 4 else value
        for name, value in model.init(0).items()
    }
    x = keys.normal(keys.key("x"), (4, 1, 20, 20))
    out = model.logits(weights, x.to(memory_format=torch.channels_last))
    assert seen == dict.fromkeys(("conv1", "norm1", "conv2", "norm2"), True)
    torch.testing.assert_close(out, model.logits(model.init(0), x))
