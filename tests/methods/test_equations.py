"""The baselines against their equations: small cases by hand, and a reference loop of ten lines."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers.fleets import fleet_of, made, run, stacker

from potluck import keys, methods
from potluck.data import PartitionSpec, federate
from potluck.data.load import load
from potluck.fleet import Data
from potluck.learn import batches
from potluck.methods import ftl
from potluck.models import build

SIZES = (12, 7, 20)


def reference_fedavg(model: Any, weights: Any, clients: Any, names: list[str], rounds: int, cfg: Any, seed: int) -> Any:
    """FedAvg as one would write it on a whiteboard; only the order of samples is the engine's."""
    for r in range(rounds):
        trained, sizes = [], []
        for name, (x, y) in zip(names, clients, strict=True):
            module = copy.deepcopy(model.module)
            module.load_state_dict(weights)
            optimiser = torch.optim.SGD(module.parameters(), lr=cfg.recipe.lr)
            data = Data(torch.from_numpy(x), torch.from_numpy(y), torch.ones(len(y)))
            rows, counts = batches(data, cfg.recipe.batch, cfg.recipe.epochs, keys.key(seed, name, r, 0))
            for step, used in zip(rows, counts, strict=True):
                batch = step[used > 0]
                optimiser.zero_grad()
                F.cross_entropy(module(data.x[batch]), data.y[batch]).backward()
                optimiser.step()
            trained.append({n: v.detach().double() for n, v in module.state_dict().items()})
            sizes.append(len(y))
        total = sum(sizes)
        weights = {n: sum(w[n] * (s / total) for w, s in zip(trained, sizes, strict=True)).float() for n in weights}
    return weights


def assert_reference(model: Any, clients: Any, rounds: int = 3) -> None:
    method = methods.load("fedavg")
    cfg = method.configure({"recipe.epochs": 2, "recipe.batch": 8, "recipe.lr": 0.05})
    fleet, state = fleet_of(method, cfg, clients, model=model)
    ours = run(method, cfg, fleet, state, rounds).weights
    theirs = reference_fedavg(model, model.init(0), clients, list(fleet.clients), rounds, cfg, 0)
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], atol=1e-5, rtol=1e-5)


@pytest.mark.quick
@pytest.mark.parametrize(("name", "settings"), [("softmax", {}), ("mlp", {"hidden": [16]})])
def test_fedavg_is_the_reference_loop_on_made_data(name: str, settings: dict[str, Any]) -> None:
    assert_reference(build(name, (4,), 3, settings), made(SIZES))


@pytest.mark.parametrize(("source", "name"), [("uci_har", "mlp"), ("clusterfl_uwb", "softmax"), ("mnist", "cnn")])
def test_fedavg_is_the_reference_loop_on_real_data(shared_datasets: Any, source: str, name: str) -> None:
    dataset = load(source)
    spec = PartitionSpec(kind="iid", clients=300) if dataset.subject is None else PartitionSpec(kind="subject")
    federation = federate(dataset, spec)
    clients = [tuple(np.ascontiguousarray(part[:40]) for part in federation.materialise(i)[:2]) for i in range(4)]
    assert_reference(build(name, dataset.sample_shape, dataset.classes, {}), clients, rounds=2)


def one_client(settings: dict[str, Any], name: str) -> tuple[Any, Any, Any, Any, Any]:
    """A method on one client whose whole data is one batch, so that every step is a full gradient."""
    method = methods.load(name)
    cfg = method.configure({"recipe.epochs": 3, "recipe.batch": 64, "recipe.lr": 0.1, **settings})
    clients = made([10, 6])
    fleet, state = fleet_of(method, cfg, clients)
    return method, cfg, fleet, state, clients


def gradient(model: Any, weights: Any, x: Any, y: Any) -> Any:
    free = {name: value.clone().requires_grad_() for name, value in weights.items()}
    loss = F.cross_entropy(model.logits(free, torch.from_numpy(x)), torch.from_numpy(y))
    return dict(zip(free, torch.autograd.grad(loss, list(free.values())), strict=True))


@pytest.mark.quick
def test_eq_2_fedprox_gradient() -> None:
    """Li et al. (2): every local step follows grad F_k(w) + mu (w - w_t)."""
    method, cfg, fleet, state, clients = one_client({"mu": 0.7}, "fedprox")
    model = fleet.home.model
    expected = []
    for x, y in clients:
        w = dict(state.weights)
        for _ in range(cfg.recipe.epochs):
            g = gradient(model, w, x, y)
            w = {n: w[n] - cfg.recipe.lr * (g[n] + cfg.mu * (w[n] - state.weights[n])) for n in w}
        expected.append(w)
    after = run(method, cfg, fleet, state, 1)
    for name in after.weights:
        mean = (10 * expected[0][name] + 6 * expected[1][name]) / 16
        torch.testing.assert_close(after.weights[name], mean, atol=1e-6, rtol=1e-5)


@pytest.mark.quick
def test_fedprox_with_mu_0_is_fedavg() -> None:
    ends = []
    for name, settings in (("fedprox", {"mu": 0.0}), ("fedavg", {})):
        method, cfg, fleet, state, _ = one_client(settings, name)
        ends.append(run(method, cfg, fleet, state, 3).weights)
    for part in ends[0]:
        torch.testing.assert_close(ends[0][part], ends[1][part], atol=1e-6, rtol=1e-6)


def test_scaffold_algorithm_1_by_hand() -> None:
    """Two rounds of lines 7 to 17 with option II, written out."""
    method, cfg, fleet, state, clients = one_client({"global_lr": 0.8}, "scaffold")
    model = fleet.home.model
    x_server, c = dict(state.weights), {n: torch.zeros_like(v) for n, v in state.weights.items()}
    c_own = [dict(c), dict(c)]
    for _ in range(2):
        steps, drifts = [], []
        for i, (x, y) in enumerate(clients):
            w = dict(x_server)
            for _ in range(cfg.recipe.epochs):
                g = gradient(model, w, x, y)
                w = {n: w[n] - cfg.recipe.lr * (g[n] - c_own[i][n] + c[n]) for n in w}  # line 10
            span = cfg.recipe.epochs * cfg.recipe.lr
            new = {n: c_own[i][n] - c[n] + (x_server[n] - w[n]) / span for n in w}  # line 12
            steps.append({n: w[n] - x_server[n] for n in w})
            drifts.append({n: new[n] - c_own[i][n] for n in w})
            c_own[i] = new
        x_server = {n: x_server[n] + cfg.global_lr * (steps[0][n] + steps[1][n]) / 2 for n in x_server}  # line 16
        c = {n: c[n] + (drifts[0][n] + drifts[1][n]) / 2 for n in c}  # line 17, |S| = N
    after = run(method, cfg, fleet, state, 2)
    for name in x_server:
        torch.testing.assert_close(after.weights[name], x_server[name], atol=2e-6, rtol=1e-5)
        torch.testing.assert_close(after.control[name], c[name], atol=2e-6, rtol=1e-5)
        torch.testing.assert_close(fleet.mine(0).control[name], c_own[0][name], atol=2e-6, rtol=1e-5)


def test_scaffold_control_is_the_mean_of_the_clients() -> None:
    method, cfg, fleet, state, _ = one_client({}, "scaffold")
    after = run(method, cfg, fleet, state, 4)
    for name in after.control:
        mean = (fleet.mine(0).control[name] + fleet.mine(1).control[name]) / 2
        torch.testing.assert_close(after.control[name], mean, atol=1e-5, rtol=1e-4)


def test_ftl_turns_from_averaging_to_tuning() -> None:
    method = methods.load("ftl")
    cfg = method.configure({"federated": 0.6, "recipe.epochs": 1, "recipe.batch": 4, "recipe.lr": 0.1})
    fleet, state = fleet_of(method, cfg, made(SIZES))
    state = run(method, cfg, fleet, state, 3, of=5)
    common = state.weights
    assert all(method.personal(state, n, fleet.mine(i)) is common for i, n in enumerate(fleet.clients))
    state = run(method, cfg, fleet, state, 2, of=5)
    assert state.weights is common  # the common model rests while everybody tunes her own
    own = [method.personal(state, n, fleet.mine(i)) for i, n in enumerate(fleet.clients)]
    assert not torch.equal(own[0]["fc.weight"], own[1]["fc.weight"])


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8, 0.9])
def test_ftl_turns_where_the_rounds_say_and_never_in_the_first(share: float) -> None:
    for rounds in range(1, 60):
        turns = [round_ for round_ in range(rounds) if ftl.turned(round_ / rounds, round_, share)]
        assert turns == list(range(max(1, round(share * rounds)), rounds))


def test_ftl_turns_by_its_share_of_another_budget() -> None:
    used = [0.0, 0.3, 0.5, 0.79, 0.82, 0.9]
    assert [ftl.turned(progress, round_, 0.8) for round_, progress in enumerate(used)] == [False] * 3 + [True] * 3


def test_ftl_last_tunes_the_last_layer_only() -> None:
    method = methods.load("ftl")
    cfg = method.configure({"federated": 0.5, "tune": "last", "recipe.epochs": 1, "recipe.batch": 4, "recipe.lr": 0.1})
    model = build("mlp", (4,), 3, {"hidden": [5]})
    fleet, state = fleet_of(method, cfg, made(SIZES), model=model)
    state = run(method, cfg, fleet, state, 2, of=2)
    own = method.personal(state, "c0", fleet.mine(0))
    moved = {name for name in own if not torch.equal(own[name], state.weights[name])}
    assert moved == {name for name in own if name.startswith(model.layers()[-1])}


def test_local_sends_no_weights() -> None:
    method = methods.load("local")
    cfg = method.configure({"recipe.epochs": 1})
    model = build("mlp", (4,), 3, {"hidden": [500]})
    fleet, state = fleet_of(method, cfg, made(SIZES), model=model)
    run(method, cfg, fleet, state, 2)
    tasks, _ = fleet.log.drain()
    assert max(task.bytes_up + task.bytes_down for task in tasks) < 1000


def test_centralised_trains_on_everybodys_rows() -> None:
    method = methods.load("centralised")
    cfg = method.configure({"recipe.epochs": 1, "recipe.batch": 64, "recipe.lr": 0.1})
    clients = made(SIZES)
    fleet, state = fleet_of(method, cfg, clients)
    state = run(method, cfg, fleet, state, 1)
    assert int(state.pool.weight.sum()) == sum(SIZES)
    x, y = np.concatenate([c[0] for c in clients]), np.concatenate([c[1] for c in clients])
    start = fleet.home.model.init(0)
    g = gradient(fleet.home.model, start, x, y)
    for name in start:
        torch.testing.assert_close(state.weights[name], start[name] - 0.1 * g[name], atol=1e-6, rtol=1e-5)
    tasks, _ = fleet.log.drain()
    raw = sum(x.nbytes + y.nbytes for x, y in clients)
    assert sum(task.bytes_up for task in tasks) > raw  # the samples are paid for


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("fedavg", {"recipe.lr": 0.0}, "method.recipe.lr: must be above 0 and finite, got 0.0."),
        ("fedavg", {"recipe.batch": 0}, "method.recipe.batch: must be 1 to 1048576, got 0."),
        ("fedavg", {"recipe.momentum": 1.0}, "method.recipe.momentum: must be at least 0 and below 1, got 1.0."),
        ("fedavg", {"epoch": 3}, "did you mean 'recipe.epochs'"),
        ("fedavg", {"recipe.lr": "fast"}, "method.recipe.lr: must be a number, got 'fast'."),
        ("fedprox", {"mu": -1.0}, "method.mu: must be 0 or more, got -1.0."),
        ("ftl", {"tune": "first"}, "Allowed: all, last"),
        ("scaffold", {"global_lr": 0}, "method.global_lr"),
    ],
)
def test_bad_settings_get_one_sentence(name: str, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence.replace("(", r"\(")):
        methods.load(name).configure(settings)


def test_an_unknown_method_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'fedavg'"):
        methods.load("fedavgg")


def test_a_module_that_is_no_method_is_refused() -> None:
    with pytest.raises(ValueError, match="has no Config"):
        methods.load("potluck.keys")


def test_stacker_pads_with_weight_0() -> None:
    stacked = stacker(made([2, 3]))([0, 1], 4)
    assert stacked.weight.tolist() == [[1, 1, 0, 0], [1, 1, 1, 0]]
