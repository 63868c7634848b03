"""What the methods with sub-models have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as nn_f
from helpers.fleets import fleet_of, made, run
from helpers.submodels import EXPERIMENT

from potluck import keys, methods
from potluck.errors import BadInput
from potluck.fleet import Data, Local
from potluck.learn import Recipe
from potluck.methods import fedmd, heterofl
from potluck.methods.parts.submodels.train import Mine
from potluck.methods.parts.submodels.widths import cut, leading, plan_of
from potluck.models import Model, build
from potluck.runs.build import build as build_run
from potluck.runs.experiment import Experiment


@pytest.mark.parametrize("name", ["heterofl", "fedrolex", "hermes", "tailorfl", "standalone", "fedmd", "fedconv"])
def test_everybody_trains_a_model_of_its_own_width(name: str) -> None:
    method = methods.load(name)
    settings: dict[str, Any] = {"recipe.epochs": 1, "recipe.batch": 5}
    settings |= {"steps.share": 1.0, "steps.accuracy": 0.0} if name in ("hermes", "tailorfl") else {}
    config = method.configure(settings)
    model = build("mlp", (4,), 3, {"hidden": [8]})
    fleet, state = fleet_of(method, config, made((12, 9, 9, 9, 9)), model=model)
    state = run(method, config, fleet, state, 2)
    sizes = sorted(len(fleet.mine(place).weights["fc1.bias"]) for place in range(5))
    assert sizes == [2, 4, 6, 6, 8]
    for place, client in enumerate(fleet.clients):
        logits = model.logits(method.personal(state, client, fleet.mine(place)), torch.zeros(2, 4))
        assert bool(torch.isfinite(logits).all())


def test_unlike_widths_are_evaluated_together() -> None:
    parts = build_run(Experiment.of({**EXPERIMENT, "method": {"name": "heterofl", "recipe.epochs": 1}}))
    state = next(parts.method.server(parts.fleet, parts.method.start(parts.weights, parts.config), parts.config))
    found = parts.evaluate(state)
    assert np.isfinite(found.accuracy).all()


@pytest.mark.parametrize("name", ["fedmd", "serveralone"])
def test_methods_that_train_on_server_rows_need_some(name: str) -> None:
    with pytest.raises(BadInput, match=r"server.share: must be above 0, got 0"):
        build_run(Experiment.of({**EXPERIMENT, "server": {"share": 0.0}, "method": {"name": name}}))


def test_fedmd_draws_its_public_samples_once() -> None:
    """A client has the same ones in every round, and sends scores of these only."""
    method = methods.load("fedmd")
    few, every = (method.configure({"public_rows": rows, "recipe.epochs": 1}) for rows in (4, 0))
    session = build_run(Experiment.of({**EXPERIMENT, "method": {"name": "fedmd"}}))
    home = session.fleet.home.data
    (x, y), again = (fedmd._public(home, few).x, fedmd._public(home, few).y), fedmd._public(home, few)
    assert torch.equal(x, again.x)
    assert torch.equal(y, again.y)
    assert len(y) == 4
    assert all(any(torch.equal(row, other) for other in home.x) for row in x)
    assert fedmd._public(home, every) is home
    steps = method.server(session.fleet, method.start(session.weights, few), few)
    for _ in range(2):
        state = next(steps)
        assert state.consensus.shape == (4, session.model.classes)
    assert torch.equal(session.fleet.mine(0).x, x)


def local_of(model: Model, y: list[int]) -> Local:
    data = Data(keys.normal(keys.key(5), (len(y), *model.shape)), torch.tensor(y), torch.ones(len(y)))
    return Local(model, data, Mine({}), keys.key(1))


def test_heterofl_trains_with_its_scaler_and_its_masked_loss() -> None:
    """One step by SGD of a client at half the width that has two of three classes, against the loss written out."""
    model = build("mlp", (4,), 3, {"hidden": [8]})
    plan, local = plan_of(model), local_of(model, [0, 2, 2, 0, 2])
    sub = cut(model.init(0), plan, leading(plan, 0.5))
    recipe = Recipe(1, 8, 0.5)
    done = heterofl.train_shaped(heterofl.Shaped(sub, recipe, masked=True, scale=2.0, tell=True), local)
    free = {name: value.clone().requires_grad_() for name, value in sub.items()}
    with torch.enable_grad():
        hidden = torch.relu(2.0 * (local.data.x @ free["fc1.weight"].T + free["fc1.bias"]))
        logits = (hidden @ free["fc2.weight"].T + free["fc2.bias"])[:, [0, 2]]
        loss = nn_f.cross_entropy(logits, torch.tensor([0, 1, 1, 0, 1]))
        slopes = dict(zip(free, torch.autograd.grad(loss, list(free.values())), strict=True))
    for name, value in done.update.weights.items():
        torch.testing.assert_close(value, sub[name] - 0.5 * slopes[name])
    assert done.update.present.tolist() == [1.0, 0.0, 1.0]


def test_heterofl_averages_a_class_s_row_over_the_clients_that_have_the_class() -> None:
    model = build("mlp", (4,), 3, {"hidden": [8]})
    plan, weights = plan_of(model), model.init(0)
    parts = [(model.init(seed), leading(plan, 1.0), present) for seed, present in ((1, [1, 1, 0]), (2, [1, 0, 0]))]
    updates = [(heterofl.Labelled(w, torch.tensor(1.0), torch.tensor(p).float()), where) for w, where, p in parts]
    found = heterofl._rows(weights, plan, updates)
    assert set(found) == {"fc2.weight", "fc2.bias"}
    first, second = parts[0][0], parts[1][0]
    torch.testing.assert_close(found["fc2.weight"][0], (first["fc2.weight"][0] + second["fc2.weight"][0]) / 2.0)
    torch.testing.assert_close(found["fc2.weight"][1], first["fc2.weight"][1])
    assert torch.equal(found["fc2.weight"][2], weights["fc2.weight"][2])  # nobody has it


def test_heterofls_norms_have_the_statistics_of_the_clients_rows_under_the_new_model() -> None:
    method = methods.load("heterofl")
    model = build("cnn", (1, 8, 8), 3, {"channels": [4], "norm": "batch"})
    config = method.configure({"recipe.epochs": 1, "recipe.batch": 5, "sizes": {"widths": [1.0], "shares": [1]}})
    draw = np.random.default_rng(0)
    rows = [(draw.normal(size=(n, 1, 8, 8)).astype(np.float32) + k, np.arange(n) % 3) for k, n in enumerate((10, 20))]
    fleet, state = fleet_of(method, config, rows, model=model)
    state = run(method, config, fleet, state, 2)
    wanted = 0.0
    for x, _ in rows:
        out = nn_f.conv2d(torch.from_numpy(x), state.weights["conv1.weight"], state.weights["conv1.bias"], padding=1)
        wanted = wanted + len(x) / 30.0 * out.mean((0, 2, 3))
    torch.testing.assert_close(state.weights["norm1.running_mean"], wanted, rtol=1e-4, atol=1e-4)
