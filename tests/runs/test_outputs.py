"""The outputs of dense and of convolutional networks by kernels, beside those of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from potluck import compiled, methods
from potluck._outputs import dense_outputs, logits, outputs, runs_apart, scores
from potluck.fleet import Data, Params
from potluck.models import Model, build
from potluck.tasks import Classification

pytestmark = pytest.mark.skipif(not compiled.ready(), reason="needs the extra fast")


def case(
    sizes: tuple[int, ...], rows: tuple[int, ...], own: bool
) -> tuple[Model, list[Params], torch.Tensor, torch.Tensor]:
    """A network, a model of each client, their samples and which of them are no padding."""
    features, *hidden = sizes
    model = build("mlp", (features,), 3, {"hidden": hidden})
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(len(rows), max(rows), features, generator=draw)
    weight = (torch.arange(max(rows)) < torch.tensor(rows)[:, None]).float()
    models = [model.init(k if own else 0) for k in range(len(rows))] if own else [model.init(0)] * len(rows)
    return model, models, x, weight


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(
    ("sizes", "rows"), [((1,), (1, 3)), ((5, 33), (7, 1, 130)), ((1152, 128), (85, 9)), ((40, 16, 70), (64, 65, 2))]
)
def test_a_kernel_gives_what_pytorch_gives(sizes: tuple[int, ...], rows: tuple[int, ...], own: bool) -> None:
    model, models, x, weight = case(sizes, rows, own)
    assert runs_apart(model, x)
    out = dense_outputs(model, models, x, weight)
    assert out is not None
    for k, count in enumerate(rows):
        torch.testing.assert_close(out[k, :count], model.logits(models[k], x[k, :count]), rtol=1e-5, atol=2e-6)


def test_a_client_has_the_same_bits_whoever_is_beside_it_and_however_many_threads_there_are() -> None:
    model, models, x, weight = case((40, 16, 70), (64, 65, 2, 31), own=True)
    alone = [dense_outputs(model, models[k : k + 1], x[k : k + 1], weight[k : k + 1]) for k in range(4)]
    with ThreadPoolExecutor(3) as pool, compiled.threads(pool, 3):
        divided = dense_outputs(model, models, x, weight)
    assert divided is not None
    assert torch.equal(divided, torch.cat([one for one in alone if one is not None]))


@pytest.mark.parametrize(
    "changed", [lambda name, value: value.double(), lambda name, value: value[:2] if name == "fc1.weight" else value]
)
def test_other_models_are_left_to_pytorch(changed: Callable[[str, torch.Tensor], torch.Tensor]) -> None:
    model, models, x, weight = case((5, 33), (7, 1), own=True)
    models[1] = {name: changed(name, value) for name, value in models[1].items()}
    assert dense_outputs(model, models, x, weight) is None
    with compiled.off():
        assert dense_outputs(model, models[:1], x[:1], weight[:1]) is None


def test_stacks_of_components_are_left_to_pytorch() -> None:
    """FedEM's models have the names of a network and another shape; the network that answers for them has no chain."""
    model, models, x, weight = case((5, 33), (7, 1), own=True)
    components = [{name: torch.stack([value, value]) for name, value in one.items()} for one in models]
    assert dense_outputs(model, components, x, weight) is None
    assert dense_outputs(methods.load("fedem").answering(model), models, x, weight) is None


IMAGES = {"cnn": (2, 9, 10), "cnn5": (1, 20, 20), "cnn1d": (21, 3)}


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("name", IMAGES)
def test_convolutions_answer_as_by_pytorch_and_apart(name: str, own: bool) -> None:
    model, rows = build(name, IMAGES[name], 3, {}), (35, 1, 7)
    x = torch.randn(len(rows), max(rows), *IMAGES[name], generator=torch.Generator().manual_seed(0))
    weight = (torch.arange(max(rows)) < torch.tensor(rows)[:, None]).float()
    models = [model.init(k) for k in range(3)] if own else [model.init(0)] * 3
    assert runs_apart(model, x)
    which = [2, 0, 1, 1]
    out = outputs(model, [models[k] for k in which], x, weight, which)
    assert out is not None
    with ThreadPoolExecutor(3) as pool, compiled.threads(pool, 3):
        divided = outputs(model, [models[k] for k in which], x, weight, which)
    assert divided is not None
    assert torch.equal(out, divided)
    for place, k in enumerate(which):
        found, alone = out[place, : rows[k]], outputs(model, [models[k]], x[k : k + 1], weight[k : k + 1])
        torch.testing.assert_close(found, model.logits(models[k], x[k, : rows[k]]), rtol=1e-5, atol=2e-6)
        assert alone is not None
        assert torch.equal(found, alone[0, : rows[k]])


def test_other_convolutions_are_left_to_pytorch() -> None:
    normed = build("cnn", (1, 8, 8), 3, {"norm": "group", "groups": 4})
    x, weight = torch.zeros(2, 4, 1, 8, 8), torch.ones(2, 4)
    assert outputs(normed, [normed.init(0)] * 2, x, weight) is None
    model = build("cnn", (1, 8, 8), 3, {})
    assert outputs(model, [model.init(0), build("cnn", (1, 8, 8), 3, {"channels": [3, 4]}).init(0)], x, weight) is None
    assert outputs(methods.load("fedem").answering(model), [model.init(0)] * 2, x, weight) is None


@pytest.mark.parametrize("classes", [2, 6, 33])
def test_a_kernel_scores_answers_as_the_task_does(classes: int) -> None:
    model = build("softmax", (4,), classes)
    draw, rows, which = torch.Generator().manual_seed(0), torch.tensor([7, 1, 3]), [2, 0, 1, 0]
    weight = (torch.arange(7) < rows[:, None]).float()
    out, y = 4 * torch.randn(4, 7, classes, generator=draw), torch.randint(classes, (3, 7), generator=draw)
    out[1, 2] = 0.0  # classes that tie
    out[3, 1], out[3, 2, 1] = 1e5 * out[3, 1], -torch.inf
    found = scores(model, out, y, weight, which)
    assert found is not None
    sums, losses = found
    torch.testing.assert_close(torch.from_numpy(sums), model.task.tally(out, y[which], weight[which]), rtol=0, atol=0)
    each = model.losses(out.flatten(0, 1).double(), y[which].flatten()).reshape(4, 7) * weight[which]
    torch.testing.assert_close(torch.from_numpy(losses), each.nan_to_num(0.0, torch.inf).sum(1), rtol=1e-6, atol=1e-6)
    with ThreadPoolExecutor(3) as pool, compiled.threads(pool, 3):
        divided = scores(model, out, y, weight, which)
    assert divided is not None
    assert all((one == other).all() for one, other in zip(found, divided, strict=True))


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_answers_that_are_no_numbers_are_scored_as_by_the_task(wrong: float) -> None:
    model, y, weight = build("softmax", (4,), 3), torch.tensor([[0, 2]]), torch.ones(1, 2)
    out = torch.tensor([[[0.0, 1.0, 2.0], [0.5, wrong, wrong]]])
    found = scores(model, out, y, weight, [0])
    assert found is not None
    torch.testing.assert_close(torch.from_numpy(found[0]), model.task.tally(out, y, weight), rtol=0, atol=0)
    assert np.isnan(found[1]).all()
    assert model.losses(out[0], y[0]).isnan().any()


def test_other_losses_are_left_to_the_task() -> None:
    y, weight = torch.zeros(1, 2, dtype=torch.int64), torch.ones(1, 2)
    tasks = (Classification(classes=3, weights=(1.0, 2.0, 1.0)), Classification(classes=3, unlabelled="ignore"))
    models = [build("svm", (4,), 3), *(build("softmax", (4,), 3, {}, task) for task in tasks)]
    assert all(scores(model, torch.zeros(1, 2, 3), y, weight, [0]) is None for model in models)


@pytest.mark.parametrize("shared", [False, True])
def test_a_stack_of_clients_is_asked_by_a_kernel_and_each_as_by_itself(shared: bool) -> None:
    model, models, x, _ = case((40, 16, 70), (64, 65, 2, 31), own=True)
    stack = models[0] if shared else {name: torch.stack([one[name] for one in models]) for name in models[0]}

    def asked(weights: Params, x: torch.Tensor) -> torch.Tensor:
        return logits(model, weights, Data(x, torch.zeros(len(x)), torch.ones(len(x))))

    def ask(weights: Params, x: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(asked, in_dims=(None if shared else 0, 0))(weights, x)

    with torch.no_grad():
        out = ask(stack, x)
        with compiled.off():
            torch.testing.assert_close(out, ask(stack, x), rtol=1e-5, atol=2e-6)
        part = stack if shared else {name: value[1:3] for name, value in stack.items()}
        assert torch.equal(ask(part, x[1:3, :37]), out[1:3, :37])  # fewer clients, and fewer rows of padding
        slopes = torch.func.grad(lambda weights: asked(weights, x[0]).sum())(models[0])
    assert float(slopes["fc1.weight"].abs().sum()) > 0.0  # where somebody wants a gradient, PyTorch answers
