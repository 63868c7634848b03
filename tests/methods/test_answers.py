"""Methods whose personal model is more than one network: FedEM's mixture and kNN-Per's memory, and what they answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers.fleets import fleet_of, made, run
from sklearn.neighbors import KNeighborsClassifier

import potluck
import potluck.runs.deal
from potluck import methods
from potluck.data.load import load
from potluck.errors import BadInput
from potluck.export.models import write
from potluck.methods import fedem, knnper
from potluck.models import build
from potluck.runs import model_files

LR = 0.1
Params = dict[str, torch.Tensor]


def ready(name: str, **settings: Any) -> tuple[Any, Any, Any, Any, Any]:
    method = methods.load(name)
    cfg = method.configure({"recipe.epochs": 1, "recipe.batch": 64, "recipe.lr": LR, **settings})
    clients = made([10, 6])
    fleet, state = fleet_of(method, cfg, clients)
    return method, cfg, fleet, state, clients


def tensors(client: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(client[0]), torch.from_numpy(client[1])


def assert_close(found: Params, expected: Params) -> None:
    assert found.keys() == expected.keys()
    for name in found:
        torch.testing.assert_close(found[name], expected[name], atol=2e-6, rtol=1e-4)


# -- FedEM -----------------------------------------------------------------------------------------------------------


def expected_round(
    model: Any, components: list[Params], shares: list[torch.Tensor], clients: Any
) -> tuple[list[Params], list[torch.Tensor]]:
    """Algorithm 1 by hand: the E-step, both M-steps with one full gradient each, and the mean by samples."""
    after: list[list[Params]] = [[] for _ in components]
    new_shares = []
    for (x, y), pi in zip(map(tensors, clients), shares, strict=True):
        likely = torch.stack(
            [p * model.logits(w, x).softmax(-1)[range(len(y)), y] for p, w in zip(pi, components, strict=True)]
        )
        q = likely / likely.sum(0)
        new_shares.append(q.mean(1))
        for m, begin in enumerate(components):
            free = {name: value.clone().requires_grad_() for name, value in begin.items()}
            losses = F.cross_entropy(model.logits(free, x), y, reduction="none")
            slope = torch.autograd.grad((q[m] * losses).mean(), list(free.values()))
            after[m].append({n: begin[n] - LR * g for n, g in zip(free, slope, strict=True)})
    sizes = [len(y) for _, y in clients]
    merged = [
        {n: sum(s * one[n] for s, one in zip(sizes, part, strict=True)) / sum(sizes) for n in part[0]} for part in after
    ]
    return merged, new_shares


def test_fedem_two_rounds_by_hand() -> None:
    method, cfg, fleet, state, clients = ready("fedem", components=2)
    model = fleet.home.model
    own = {name: value[0] for name, value in state.weights.items()}
    components: list[Params] = [own, fedem.other_start(model, cfg.seed, 1)]
    shares = [torch.full((2,), 0.5)] * 2
    for _ in range(2):
        components, shares = expected_round(model, components, shares, clients)
    after = run(method, cfg, fleet, state, 2)
    for m, one in enumerate(components):
        assert_close(fedem.components(after.weights)[m], one)
    for i, pi in enumerate(shares):
        torch.testing.assert_close(fleet.mine(i).shares, pi, atol=1e-6, rtol=1e-4)


def test_fedem_answers_with_the_mixture_of_probabilities() -> None:
    model = build("softmax", (4,), 3, {})
    one, two = model.init(1), model.init(2)
    mixed = {name: torch.stack([one[name], two[name]]) for name in one} | {fedem.SHARES: torch.tensor([0.3, 0.7])}
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    found = methods.load("fedem").answering(model).logits(mixed, x)
    expected = 0.3 * model.logits(one, x).softmax(-1) + 0.7 * model.logits(two, x).softmax(-1)
    torch.testing.assert_close(found.softmax(-1), expected)
    torch.testing.assert_close(found.exp(), expected)


def test_fedem_with_one_component_is_fedavg() -> None:
    ends = []
    for name, settings in (("fedem", {"components": 1}), ("fedavg", {})):
        method, cfg, fleet, state, _ = ready(name, **settings)
        ends.append(dict(run(method, cfg, fleet, state, 2).weights))
    assert_close({name: value[0] for name, value in ends[0].items()}, ends[1])


def test_fedem_counts_the_visits_of_every_component() -> None:
    tasks = {}
    for count in (1, 3):
        method, cfg, fleet, state, _ = ready("fedem", components=count)
        run(method, cfg, fleet, state, 1)
        tasks[count] = sum(task.passes for task in fleet.log.drain()[0])
    assert tasks[3] == pytest.approx(3 * tasks[1])


def test_fedem_gives_unlike_clients_unlike_shares() -> None:
    clients = [(x, (2 - y) if i % 2 else y) for i, (x, y) in enumerate(made((40, 40, 40, 40)))]
    method = methods.load("fedem")
    cfg = method.configure({"components": 2, "recipe.epochs": 2, "recipe.batch": 64, "recipe.lr": 0.5})
    fleet, state = fleet_of(method, cfg, clients)
    after = run(method, cfg, fleet, state, 25)
    first = [float(fleet.mine(i).shares[0]) for i in range(4)]
    assert abs(first[0] - first[2]) < 0.2 < abs(first[0] - first[1])
    x, y = tensors(clients[1])
    right = method.answering(fleet.home.model).logits(method.personal(after, "c1", fleet.mine(1)), x).argmax(-1) == y
    assert right.float().mean() > 0.9


# -- kNN-Per ---------------------------------------------------------------------------------------------------------


def remembered(features: np.ndarray, labels: np.ndarray, classes: int, k: int, scale: float, room: int = 0) -> Params:
    """A memory of these samples, with `room` for more."""
    kept = torch.zeros(len(features) + room, features.shape[1])
    kept[: len(features)] = torch.from_numpy(features)
    named = torch.zeros(len(kept), classes)
    named[: len(features)] = F.one_hot(torch.from_numpy(labels), classes)
    return {"features": kept, "labels": named, "neighbours": torch.tensor(k), "scale": torch.tensor(scale)}


@pytest.mark.parametrize(("k", "scale"), [(1, 1.0), (4, 0.5), (50, 3.0)])
def test_neighbours_are_those_of_scikit_learn(k: int, scale: float) -> None:
    (x, y), (queries, _) = made([30, 9], features=5)
    known = KNeighborsClassifier(min(k, 30), weights=lambda d: np.exp(-(d**2) / (5 * scale))).fit(x, y)
    found = knnper.said_by_neighbours(remembered(x, y, 3, k, scale, room=7), torch.from_numpy(queries))
    np.testing.assert_allclose(found.numpy(), known.predict_proba(queries), atol=1e-5)


def test_a_sample_is_not_its_own_neighbour_when_lambda_is_chosen() -> None:
    x, y = np.array([[0.0], [0.1], [5.0]], dtype=np.float32), np.array([0, 1, 0])
    memory = remembered(x, y, 2, 1, 1.0)
    near = knnper.said_by_neighbours(memory, memory["features"], torch.eye(3))
    assert near.argmax(-1).tolist() == [1, 0, 1]


def test_an_empty_memory_says_nothing() -> None:
    memory = remembered(np.zeros((0, 2), dtype=np.float32), np.zeros(0, dtype=np.int64), 3, 5, 1.0, room=4)
    assert knnper.said_by_neighbours(memory, torch.randn(2, 2)).tolist() == [[0.0] * 3] * 2


def test_lambda_is_the_likeliest_of_the_grid() -> None:
    near, logits = torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([[0.0, 1.0], [0.0, 2.0]])
    right = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    p = logits.softmax(-1)
    score = [
        float(torch.log(lam * near[0, 0] + (1 - lam) * p[0, 0]) + torch.log(lam * near[1, 1] + (1 - lam) * p[1, 1]))
        for lam in knnper.GRID
    ]
    assert knnper.likeliest(near, logits, right) == knnper.GRID[int(np.argmax(score))]
    assert knnper.likeliest(torch.zeros(2, 2), logits, right) == 0.0  # neighbours that say nothing


def test_knnper_trains_as_fedavg_and_answers_with_its_memory() -> None:
    method, cfg, fleet, state, clients = ready("knnper", neighbours=3, memory=8)
    model = fleet.home.model
    plain = ready("fedavg")
    assert_close(run(method, cfg, fleet, state, 2).weights, run(*plain[:4], 2).weights)
    mine = fleet.mine(0)
    assert mine.memory["labels"].sum() == 8  # of ten samples
    assert fleet.mine(1).memory["labels"].sum() == 6
    after_one = run(*ready("fedavg")[:4], 1).weights
    assert_close(mine.weights, after_one)  # the model received last, to which the memory belongs
    x, _ = tensors(clients[0])
    found = method.answering(model).logits(method.personal(state, "c0", mine), x)
    lam, near = mine.memory["lam"], knnper.said_by_neighbours(mine.memory, x)  # the features of softmax are its input
    torch.testing.assert_close(
        found.softmax(-1), lam * near + (1 - lam) * model.logits(mine.weights, x).softmax(-1), atol=1e-6, rtol=1e-4
    )


OWN = '''
"""Mean of two."""

import torch

from potluck.fleet import Done
from potluck.methods import fedavg
from potluck.methods.fedavg import Config, State, Train, Trained, server, start


def train(task, local):
    return Done(fedavg.train(task, local).update)


PROGRAMS = {Train: train}


def shared(state):
    return {name: torch.stack([value, 2 * value]) for name, value in state.weights.items()}


def answer(model, weights, x, *, t=None, length=None):
    return sum(model.logits({n: v[m] for n, v in weights.items()}, x, t=t, length=length) for m in (0, 1))


ANSWER = answer
'''


def test_a_file_of_ones_own_says_how_its_model_answers(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    given = {"data": {"source": "made"}, "stop": {"rounds": 2}, "run": {"out": str(tmp_path / "runs")}}
    done = potluck.run({**given, "method": {"name": str(tmp_path / "mine.py")}})
    dataset, client = load("made"), done.clients[0]
    rows = potluck.runs.deal.federation_of(done.experiment).test_rows(0)
    right = done.personal(client).predict(dataset.x[rows]) == dataset.y[rows]
    assert right.mean() == pytest.approx(done.summary["per_client"][client])
    with pytest.raises(BadInput, match=r"must be installed"):
        potluck.open_model(done.folder / "models" / "global.safetensors")


@pytest.mark.parametrize("name", ["fedem", "knnper"])
def test_a_model_without_probabilities_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="model: must answer with probabilities of classes"):
        potluck.run({"data": {"source": "made"}, "model": {"name": "svm"}, "method": {"name": name}})


# -- from the run's folder -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["fedem", "knnper"])
def done(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return potluck.run(
        {
            "data": {"source": "made"},
            "method": {"name": request.param, "recipe": {"lr": 0.05}},
            "model": {"name": "mlp", "hidden": [8]},
            "fleet": {"devices": "boards"},
            "stop": {"rounds": 3},
            "run": {"out": str(tmp_path_factory.mktemp("runs"))},
        }
    )


def test_personal_models_predict_what_was_evaluated(done: Any) -> None:
    client = done.clients[0]
    dataset = load("made")
    rows = potluck.runs.deal.federation_of(done.experiment).test_rows(0)
    right = done.personal(client).predict(dataset.x[rows]) == dataset.y[rows]
    assert right.mean() == pytest.approx(done.summary["per_client"][client])


def test_safetensors_keep_how_a_model_answers_and_c_cannot(done: Any, tmp_path: Path) -> None:
    client = done.clients[0]
    write([done], "safetensors", str(tmp_path), [client])
    (path,) = tmp_path.rglob("*.safetensors")
    x = load("made").x[:20]
    np.testing.assert_array_equal(potluck.open_model(path).scores(x), done.personal(client).scores(x))
    with pytest.raises(BadInput, match="more than one network, so it has no form in C; export it to safetensors"):
        write([done], "c", str(tmp_path), [client])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_onnx_has_the_same_answers(done: Any, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    (line,) = write([done], "onnx", str(tmp_path), [done.clients[0]])
    assert "as PyTorch" in line


def test_a_model_file_cannot_name_code_that_is_not_installed(done: Any, tmp_path: Path) -> None:
    weights, about = model_files.load(next((done.folder / "models" / "personal").glob("*.safetensors")))
    model_files.save(tmp_path / "bad.safetensors", weights, {**about, "answers_by": "evil.py"})
    with pytest.raises(BadInput, match=r"model file: answers by the method 'evil.py', which must be installed"):
        potluck.open_model(tmp_path / "bad.safetensors")
