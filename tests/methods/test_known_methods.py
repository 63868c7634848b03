"""The methods that readers look up first, against their equations: one or two rounds written out by hand."""

from __future__ import annotations

import dataclasses
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers.fleets import fleet_of, made, run

from potluck import methods
from potluck.errors import BadInput
from potluck.methods import cfl, fedadagrad, fedadam, fedamp, fednova, fedproto, fedyogi, qfedavg
from potluck.methods.parts.starts import other_start
from potluck.models import build

LR, EPOCHS = 0.1, 3
Params = dict[str, torch.Tensor]


def ready(name: str, settings: dict[str, Any] | None = None, deep: bool = False) -> tuple[Any, Any, Any, Any, Any]:
    """A method on two clients whose whole data is one batch, so that every step is a full gradient."""
    method = methods.load(name)
    cfg = method.configure({"recipe.epochs": EPOCHS, "recipe.batch": 64, "recipe.lr": LR, **(settings or {})})
    clients = made([10, 6])
    model = build("mlp", (4,), 3, {"hidden": [5]}) if deep else None
    fleet, state = fleet_of(method, cfg, clients, model=model)
    return method, cfg, fleet, state, clients


def gradient(model: Any, weights: Params, client: Any) -> Params:
    free = {name: value.clone().requires_grad_() for name, value in weights.items()}
    x, y = client
    loss = F.cross_entropy(model.logits(free, torch.from_numpy(x)), torch.from_numpy(y))
    return dict(zip(free, torch.autograd.grad(loss, list(free.values())), strict=True))


def descended(model: Any, weights: Params, client: Any, only: Any = None, steps: int = EPOCHS) -> Params:
    for _ in range(steps):
        g = gradient(model, weights, client)
        weights = {n: w - LR * g[n] if only is None or n in only else w for n, w in weights.items()}
    return weights


def average(models: list[Params], sizes: tuple[int, ...] = (10, 6)) -> Params:
    return {n: sum(s * m[n] for s, m in zip(sizes, models, strict=True)) / sum(sizes) for n in models[0]}


def assert_close(found: Params, expected: Params, atol: float = 2e-6) -> None:
    assert found.keys() == expected.keys()
    for name in found:
        torch.testing.assert_close(found[name], expected[name], atol=atol, rtol=1e-4)


# -- a step of the server --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "second"),
    [
        (fedyogi, 1e-4 - 0.01 * 0.25 * np.sign(1e-4 - 0.25)),
        (fedadam, 0.99 * 1e-4 + 0.01 * 0.25),
        (fedadagrad, 1e-4 + 0.25),
    ],
)
def test_adaptive_steps_by_hand(module: Any, second: float) -> None:
    """Reddi et al., Algorithm 2, one number: x = 1, the clients' mean is 1.5, so delta = 0.5. Buffers take the mean."""
    from potluck.methods.parts.server_step import moved

    cfg = module.Config(server_lr=0.1, beta1=0.9, beta2=0.99, tau=1e-2)
    state = module.start({"w": torch.tensor([1.0]), "seen": torch.tensor([4.0])}, cfg)
    after = moved(state, {"w": torch.tensor([1.5]), "seen": torch.tensor([5.0])}, cfg, module.second, {"w"})
    m = 0.1 * 0.5
    assert after.first["w"].item() == pytest.approx(m)
    assert after.second["w"].item() == pytest.approx(second)
    assert after.weights["w"].item() == pytest.approx(1.0 + 0.1 * m / (np.sqrt(second) + 1e-2), rel=1e-5)
    assert after.weights["seen"].item() == 5.0


def test_fedavgm_is_heavy_ball_on_the_mean_change() -> None:
    method, cfg, fleet, state, clients = ready("fedavgm", {"beta": 0.5, "server_lr": 0.8})
    model, w = fleet.home.model, dict(state.weights)
    v = {n: torch.zeros_like(x) for n, x in w.items()}
    for _ in range(2):
        target = average([descended(model, w, client) for client in clients])
        v = {n: 0.5 * v[n] + target[n] - w[n] for n in w}
        w = {n: w[n] + 0.8 * v[n] for n in w}
    assert_close(run(method, cfg, fleet, state, 2).weights, w)


def test_fedavgm_without_momentum_is_fedavg() -> None:
    ends = []
    for name, settings in (("fedavgm", {"beta": 0.0}), ("fedavg", {})):
        method, cfg, fleet, state, _ = ready(name, settings)
        ends.append(run(method, cfg, fleet, state, 2).weights)
    assert_close(*ends)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_fednova_counts_what_a_gradient_adds_up_to(momentum: float) -> None:
    """||a||_1 is the sum of how much each step's gradient moves the weights, in units of the learning rate."""
    recipe = fednova.Config().recipe.__class__(epochs=2, batch=4, lr=1.0, momentum=momentum)
    for samples in (3, 4, 9):
        velocity = moved = 0.0
        for _ in range(2 * -(-samples // 4)):
            velocity = momentum * velocity + 1.0  # a constant gradient of one
            moved += velocity
        assert fednova.normaliser(torch.tensor(float(samples)), recipe).item() == pytest.approx(moved, rel=1e-5)


def test_eq_8_fednova() -> None:
    method, cfg, fleet, state, _ = ready("fednova", {"recipe.batch": 4})
    w, steps, share = state.weights, [9.0, 6.0], [10 / 16, 6 / 16]  # 3 epochs of 3 and of 2 batches
    seen: list[Params] = []
    gather = fleet.gather
    fleet.gather = lambda tasks: [seen.append(a.update.weights) or a for a in gather(tasks)]
    after = run(method, cfg, fleet, state, 1).weights
    effective = sum(s * p for s, p in zip(steps, share, strict=True))
    expected = {
        n: w[n] + effective * sum(p * (m[n] - w[n]) / s for p, s, m in zip(share, steps, seen, strict=True)) for n in w
    }
    assert_close(after, expected)


def test_fednova_with_equal_steps_is_fedavg() -> None:
    ends = []
    for name in ("fednova", "fedavg"):
        method, cfg, fleet, state, _ = ready(name)
        ends.append(run(method, cfg, fleet, state, 2).weights)
    assert_close(*ends)


def test_q_fedavg_algorithm_2_by_hand() -> None:
    method, cfg, fleet, state, clients = ready("qfedavg", {"q": 2.0})
    model, w = fleet.home.model, state.weights
    top: Params = {n: torch.zeros_like(x) for n, x in w.items()}
    bottom = 0.0
    for client in clients:
        x, y = (torch.from_numpy(part) for part in client)
        loss = float(F.cross_entropy(model.logits(w, x), y))
        end = descended(model, w, client)
        change = {n: (w[n] - end[n]) / LR for n in w}
        bottom += 2.0 * loss * sum(float(c.square().sum()) for c in change.values()) + loss**2 / LR
        top = {n: top[n] + loss**2 * change[n] for n in w}
    assert_close(run(method, cfg, fleet, state, 1).weights, {n: w[n] - top[n] / bottom for n in w})


def test_q_fedavg_with_q_0_is_the_plain_mean() -> None:
    models = [{"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([3.0, 0.0])}]
    updates = [
        qfedavg.Trained(m, torch.tensor(loss), torch.tensor(5.0)) for m, loss in zip(models, (0.3, 2.0), strict=True)
    ]
    after = qfedavg.step({"w": torch.tensor([0.5, 0.5])}, updates, qfedavg.Config(q=0.0), frozenset({"w"}))
    torch.testing.assert_close(after["w"], torch.tensor([2.0, 1.0]))


def test_feddyn_algorithm_1_by_hand() -> None:
    method, cfg, fleet, state, clients = ready("feddyn", {"alpha": 0.3})
    model, w = fleet.home.model, dict(state.weights)
    h: Params = {n: torch.zeros_like(x) for n, x in w.items()}
    g_own = [dict(h), dict(h)]
    for _ in range(2):
        ends = []
        for i, client in enumerate(clients):
            end = dict(w)
            for _ in range(EPOCHS):
                g = gradient(model, end, client)
                end = {n: end[n] - LR * (g[n] - g_own[i][n] + 0.3 * (end[n] - w[n])) for n in w}  # eq. (1)
            g_own[i] = {n: g_own[i][n] - 0.3 * (end[n] - w[n]) for n in w}
            ends.append(end)
        mean = average(ends, (1, 1))
        h = {n: h[n] - 0.3 * (mean[n] - w[n]) for n in w}
        w = {n: mean[n] - h[n] / 0.3 for n in w}
    after = run(method, cfg, fleet, state, 2)
    assert_close(after.weights, w, 1e-5)
    assert_close(fleet.mine(1).gradient, g_own[1], 1e-5)


# -- a personal model beside the shared one --------------------------------------------------------------------------


def test_ditto_algorithm_1_by_hand() -> None:
    method, cfg, fleet, state, clients = ready("ditto", {"lam": 0.7})
    model, w = fleet.home.model, state.weights
    after = run(method, cfg, fleet, state, 1)
    assert_close(after.weights, average([descended(model, w, client) for client in clients]))
    own = dict(w)
    for _ in range(EPOCHS):
        g = gradient(model, own, clients[1])
        own = {n: own[n] - LR * (g[n] + 0.7 * (own[n] - w[n])) for n in own}
    assert_close(method.personal(after, "c1", fleet.mine(1)), own)


def test_ditto_without_a_pull_learns_alone() -> None:
    ends = []
    for name, settings in (("ditto", {"lam": 0.0}), ("local", {})):
        method, cfg, fleet, state, _ = ready(name, settings)
        after = run(method, cfg, fleet, state, 2)
        ends.append(method.personal(after, "c0", fleet.mine(0)))
    assert_close(*ends)


def test_pfedme_algorithm_1_by_hand() -> None:
    method, cfg, fleet, state, clients = ready("pfedme", {"lam": 2.0, "inner": 3, "eta": 0.05, "beta": 0.5})
    model, w0 = fleet.home.model, state.weights
    ends, thetas = [], []
    for client in clients:
        w, theta = dict(w0), dict(w0)
        for _ in range(EPOCHS):
            for _ in range(3):
                g = gradient(model, theta, client)
                theta = {n: theta[n] - LR * (g[n] + 2.0 * (theta[n] - w[n])) for n in w}
            w = {n: w[n] - 0.05 * 2.0 * (w[n] - theta[n]) for n in w}
        ends.append(w)
        thetas.append(theta)
    after = run(method, cfg, fleet, state, 1)
    assert_close(after.weights, average([w0, average(ends)], (1, 1)))
    assert_close(method.personal(after, "c0", fleet.mine(0)), thetas[0])


def test_apfl_algorithm_1_by_hand() -> None:
    method, cfg, fleet, state, clients = ready("apfl", {"alpha": 0.25})
    model, w0 = fleet.home.model, state.weights
    after = run(method, cfg, fleet, state, 1)
    w, v = dict(w0), dict(w0)
    for _ in range(EPOCHS):
        mixed = {n: 0.25 * v[n] + 0.75 * w[n] for n in w}
        g_mixed, g = gradient(model, mixed, clients[0]), gradient(model, w, clients[0])
        v = {n: v[n] - LR * 0.25 * g_mixed[n] for n in w}
        w = {n: w[n] - LR * g[n] for n in w}
    g_mixed = gradient(model, {n: 0.25 * v[n] + 0.75 * w[n] for n in w}, clients[0])
    alpha = 0.25 - LR * sum(float(((v[n] - w[n]) * g_mixed[n]).sum()) for n in w)  # eq. (10)
    mine = fleet.mine(0)
    assert float(mine.alpha) == pytest.approx(alpha, abs=1e-6)
    assert_close(mine.weights, v)
    assert_close(method.personal(after, "c0", mine), {n: alpha * v[n] + (1 - alpha) * w[n] for n in w})


@pytest.mark.parametrize("form", ["first", "hessian-free"])
def test_perfedavg_algorithm_1_by_hand(form: str) -> None:
    method, cfg, fleet, state, clients = ready("perfedavg", {"form": form, "alpha": 0.2, "delta": 0.05})
    model, w0 = fleet.home.model, state.weights

    def step(w: Params, g: Params, rate: float) -> Params:
        return {n: w[n] - rate * g[n] for n in w}

    ends = []
    for client in clients:
        w = dict(w0)
        for _ in range(EPOCHS):
            outer = gradient(model, step(w, gradient(model, w, client), 0.2), client)
            if form == "hessian-free":  # eq. (19)
                ahead, behind = (gradient(model, step(w, outer, -s * 0.05), client) for s in (1, -1))
                outer = {n: outer[n] - 0.2 * (ahead[n] - behind[n]) / 0.1 for n in w}
            w = step(w, outer, LR)
        ends.append(w)
    after = run(method, cfg, fleet, state, 1)
    assert_close(after.weights, average(ends), 1e-5)
    assert_close(method.personal(after, "c0", fleet.mine(0)), step(w0, gradient(model, w0, clients[0]), 0.2))


def test_fedala_learns_which_entries_to_take() -> None:
    """The first round is FedAvg. In the second, W follows the gradient of equation (5), within 0 to 1."""
    method, cfg, fleet, state, clients = ready("fedala", {"first_epochs": 1, "share": 1.0}, deep=True)
    model = fleet.home.model
    first = run(method, cfg, fleet, state, 1)
    assert_close(first.weights, average([descended(model, state.weights, client) for client in clients]))
    own, common, last = fleet.mine(0).weights, first.weights, model.last_layers()
    g = gradient(model, common, clients[0])  # W is one at first: the start is the global model
    mixing = {n: (1.0 - g[n] * (common[n] - own[n])).clamp(0.0, 1.0) for n in last}
    begin = {n: own[n] + (common[n] - own[n]) * mixing[n] if n in last else common[n] for n in common}
    second = run(method, cfg, fleet, first, 1)
    assert_close({n: fleet.mine(0).mixing[n] for n in last}, mixing)
    assert_close(method.personal(second, "c0", fleet.mine(0)), descended(model, begin, clients[0]), 1e-5)


def test_moon_equations_3_and_4() -> None:
    """With tau and mu given, the loss of the first step is that of the paper; with mu = 0 it is FedAvg."""
    method, cfg, fleet, state, clients = ready("moon", {"mu": 2.0, "temperature": 0.5}, deep=True)
    model, w0 = fleet.home.model, state.weights
    last = model.layers()[-1]

    def features(weights: Params, x: torch.Tensor) -> torch.Tensor:
        cut = weights | {f"{last}.weight": torch.eye(5), f"{last}.bias": torch.zeros(5)}
        return model.logits(cut, x)

    def loss(weights: Params, before: Params, common: Params, client: Any) -> torch.Tensor:
        x, y = (torch.from_numpy(part) for part in client)
        z, new, old = features(weights, x), features(common, x).detach(), features(before, x).detach()
        same, past = (torch.exp(F.cosine_similarity(z, other) / 0.5) for other in (new, old))
        return F.cross_entropy(model.logits(weights, x), y) - 2.0 * torch.log(same / (same + past)).mean()

    before, common = [w0, w0], w0
    for _ in range(2):
        ends = []
        for i, client in enumerate(clients):
            w = dict(common)
            for _ in range(EPOCHS):
                free = {n: v.clone().requires_grad_() for n, v in w.items()}
                g = torch.autograd.grad(loss(free, before[i], common, client), list(free.values()))
                w = {n: w[n] - LR * one for n, one in zip(w, g, strict=True)}
            ends.append(w)
        before, common = ends, average(ends)
    assert_close(run(method, cfg, fleet, state, 2).weights, common, 1e-5)


# -- some layers stay on the client ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "shares_last"), [("fedper", False), ("fedrep", False), ("lgfedavg", True)])
def test_only_some_layers_travel(name: str, shares_last: bool) -> None:
    method, cfg, fleet, state, _ = ready(name, deep=True)
    last, sent = fleet.home.model.last_layers(), []
    gather = fleet.gather
    fleet.gather = lambda tasks: [sent.extend([tasks[a.client].weights, a.update.weights]) or a for a in gather(tasks)]
    after = run(method, cfg, fleet, state, 2)
    expected = last if shares_last else fleet.home.model.trainable - last
    assert all(set(one) == expected for one in sent)
    ours, theirs = (method.personal(after, f"c{i}", fleet.mine(i)) for i in range(2))
    for part in ours:
        assert torch.equal(ours[part], theirs[part]) == (part in expected)


def test_fedper_and_its_mirror_train_the_whole_model() -> None:
    method, cfg, fleet, state, clients = ready("fedper", deep=True)
    model, last = fleet.home.model, fleet.home.model.last_layers()
    ends = [descended(model, state.weights, client) for client in clients]
    body = {n: v for n, v in average(ends).items() if n not in last}
    after = run(method, cfg, fleet, state, 1)
    assert_close(after.weights, body)
    assert_close(method.personal(after, "c1", fleet.mine(1)), {**ends[1], **body})


def test_fedrep_algorithm_1_by_hand() -> None:
    method, cfg, fleet, state, clients = ready("fedrep", {"head_epochs": 2, "recipe.epochs": 1}, deep=True)
    model, last = fleet.home.model, fleet.home.model.last_layers()
    ends = []
    for client in clients:
        headed = descended(model, state.weights, client, only=last, steps=2)
        ends.append(descended(model, headed, client, only=model.trainable - last, steps=1))
    after = run(method, cfg, fleet, state, 1)
    assert_close(after.weights, {n: v for n, v in average(ends).items() if n not in last})
    assert_close({n: fleet.mine(0).weights[n] for n in last}, {n: ends[0][n] for n in last})


@pytest.mark.parametrize("name", ["fedper", "fedrep", "lgfedavg"])
def test_a_model_of_one_layer_is_refused(name: str) -> None:
    method = methods.load(name)
    fleet, _ = fleet_of(method, method.configure({}), made([8, 8]))
    with pytest.raises(BadInput, match="must have more than 1 layers"):
        method.check(method.configure({}), fleet.home)


def test_fedbn_keeps_batch_norm_at_home() -> None:
    method = methods.load("fedbn")
    cfg = method.configure({"recipe.batch": 8})
    model = build("potluck.testing.samples:Deep", (4,), 3, {})
    fleet, state = fleet_of(method, cfg, made([16, 16]), model=model)
    after = run(method, cfg, fleet, state, 2)
    norms = model.batch_norms()
    assert {n.rpartition(".")[2] for n in norms} == {"weight", "bias", "running_mean", "running_var"}
    assert not norms & after.weights.keys()
    ours, theirs = (method.personal(after, f"c{i}", fleet.mine(i)) for i in range(2))
    assert all(torch.equal(ours[n], theirs[n]) != (n in norms) for n in ours)


def test_fedbn_refuses_a_model_without_batch_norm() -> None:
    method = methods.load("fedbn")
    fleet, _ = fleet_of(method, method.configure({}), made([8, 8]))
    with pytest.raises(BadInput, match="must have batch norm for fedbn"):
        method.check(method.configure({}), fleet.home)


# -- prototypes, attraction, clusters --------------------------------------------------------------------------------


def test_fedproto_prototypes_and_answers() -> None:
    """Equations (3), (6) and (8): class means of features, weighted by samples; the nearest prototype answers."""
    method, cfg, fleet, state, clients = ready("fedproto", deep=True)
    model = fleet.home.model
    after = run(method, cfg, fleet, state, 1)
    last, sums, counts = model.layers()[-1], torch.zeros(3, 5), torch.zeros(3)
    for i, (x, y) in enumerate(clients):
        own = fleet.mine(i).weights | {f"{last}.weight": torch.eye(5), f"{last}.bias": torch.zeros(5)}
        z = model.logits(own, torch.from_numpy(x))
        for row, label in zip(z, y, strict=True):
            sums[label] += row
            counts[label] += 1
    torch.testing.assert_close(after.prototypes, sums / counts.clamp_min(1)[:, None], atol=1e-5, rtol=1e-4)
    x = torch.from_numpy(clients[0][0])
    nearest = torch.cdist(model.logits(fleet.mine(0).weights | {f"{last}.weight": torch.eye(5), f"{last}.bias":
                          torch.zeros(5)}, x), after.prototypes).argmin(1)  # fmt: skip
    assert torch.equal(model.logits(method.personal(after, "c0", fleet.mine(0)), x).argmax(1), nearest)


def test_fedproto_never_answers_with_a_class_that_nobody_has() -> None:
    proto, known = fedproto.merged(
        torch.zeros(3, 2), torch.zeros(3), [fedproto.Trained(torch.ones(3, 2), torch.tensor([2.0, 0.0, 1.0]))]
    )
    assert known.tolist() == [1.0, 0.0, 1.0]
    state = fedproto.State(proto, known, "fc")
    mine = fedproto.Mine({"fc.weight": torch.zeros(3, 2), "fc.bias": torch.zeros(3)})
    assert int(fedproto.personal(state, "c0", mine)["fc.bias"].argmin()) == 1


def test_fedproto_pulls_features_to_the_prototypes() -> None:
    ends = []
    for lam in (0.0, 10.0):
        method, cfg, fleet, state, _ = ready("fedproto", {"lam": lam, "recipe.lr": 0.02}, deep=True)
        first = run(method, cfg, fleet, state, 1)
        second = run(method, cfg, fleet, first, 1)
        ends.append((second.prototypes - first.prototypes).norm())
    assert ends[1] < ends[0]


def test_eq_3_fedamp_attracts_similar_clients_more() -> None:
    cfg = fedamp.Config(sigma=0.5, own_share=0.4)
    models = torch.tensor([[0.0, 0.0, 9.0], [0.1, 0.0, 5.0], [3.0, 4.0, 1.0]])  # the last column is a buffer
    distance = torch.tensor([[0.0, 0.01, 25.0], [0.01, 0.0, 2.9**2 + 16.0], [25.0, 2.9**2 + 16.0, 0.0]])
    scale = 0.5 * distance.sum() / 6
    pull = torch.exp(-distance / scale) * (1 - torch.eye(3))
    share = pull * 0.6 / pull.sum(1).max()
    share += torch.diag(1 - share.sum(1))
    found = fedamp.attracted(models, 2, cfg)
    torch.testing.assert_close(found, share @ models, atol=1e-6, rtol=1e-5)
    assert share.diag().min() == pytest.approx(0.4)


def test_fedamp_pulls_to_the_clients_own_cloud() -> None:
    method, cfg, fleet, state, clients = ready("fedamp", {"lam": 0.5})
    model = fleet.home.model
    after = run(method, cfg, fleet, state, 1)
    ends = [fleet.mine(i).weights for i in range(2)]
    names = list(ends[0])
    width = sum(ends[0][n].numel() for n in names)
    clouds = fedamp.attracted(after.models, width, cfg)
    assert after.names == ("c0", "c1")
    torch.testing.assert_close(after.clouds, clouds)
    cloud = dict(zip(names, torch.split(clouds[1], [ends[1][n].numel() for n in names]), strict=True))
    own = ends[1]
    for _ in range(EPOCHS):
        g = gradient(model, own, clients[1])
        own = {n: own[n] - LR * (g[n] + 0.5 * (own[n] - cloud[n].reshape(own[n].shape))) for n in own}  # eq. (4)
    assert_close(method.personal(run(method, cfg, fleet, after, 1), "c1", fleet.mine(1)), own, 1e-5)


def opposite(sizes: tuple[int, ...]) -> list[Any]:
    """Clients of two kinds: every second one calls the classes by other names."""
    return [(x, (2 - y) if i % 2 else y) for i, (x, y) in enumerate(made(sizes))]


def test_ifca_finds_who_agrees() -> None:
    """A client trains the model that fits it best, and a cluster is the mean of those that chose it."""
    method = methods.load("ifca")
    cfg = method.configure({"clusters": 2, "recipe.batch": 64, "recipe.lr": 0.5})
    fleet, state = fleet_of(method, cfg, opposite((30, 30, 30, 30)))
    after = run(method, cfg, fleet, state, 8)
    groups = method.clusters(after)
    assert groups["c0"] == groups["c2"] != groups["c1"] == groups["c3"]
    assert method.personal(after, "c1", None) is after.models[groups["c1"]]
    assert method.received(after, "a stranger") is after.models[0 if list(groups.values()).count(0) >= 2 else 1]


def test_ifca_algorithm_1_by_hand() -> None:
    """Option II: each client trains the model with the lowest loss, and each model becomes the mean of its clients."""
    method, cfg, fleet, state, clients = ready("ifca", {"clusters": 2}, deep=True)
    model = fleet.home.model
    models = [state.models[0], other_start(model, cfg.seed, 1)]
    for _ in range(2):
        groups: dict[int, list[int]] = {}
        for i, (x, y) in enumerate(clients):
            losses = [float(F.cross_entropy(model.logits(m, torch.from_numpy(x)), torch.from_numpy(y))) for m in models]
            groups.setdefault(int(np.argmin(losses)), []).append(i)  # line 6
        for j, group in groups.items():
            ends = [descended(model, models[j], clients[i]) for i in group]
            models[j] = average(ends, tuple(len(clients[i][0]) for i in group))  # line 12
    after = run(method, cfg, fleet, state, 2)
    for found, expected in zip(after.models, models, strict=True):
        assert_close(found, expected, 1e-5)
    assert method.clusters(after) == {f"c{i}": j for j, group in groups.items() for i in group}


def test_ifca_with_one_cluster_is_fedavg() -> None:
    ends = []
    for name, settings in (("ifca", {"clusters": 1}), ("fedavg", {})):
        method, cfg, fleet, state, _ = ready(name, settings)
        ends.append(method.personal(run(method, cfg, fleet, state, 2), "c0", None))
    assert_close(*ends)


def test_cfl_splits_clients_that_pull_apart() -> None:
    method = methods.load("cfl")
    cfg = method.configure({"recipe.batch": 64, "recipe.lr": 0.5, "first": 3, "ratio": 0.5})
    fleet, state = fleet_of(method, cfg, opposite((30, 30, 30, 30)))
    after = run(method, cfg, fleet, state, 8)
    groups = method.clusters(after)
    assert groups["c0"] == groups["c2"] != groups["c1"] == groups["c3"]


def test_eq_28_cfl_splits_a_round_by_hand() -> None:
    """The halves are those whose most alike clients across them are least alike; each gets the mean of its clients."""
    method = methods.load("cfl")
    settings = {"recipe.epochs": EPOCHS, "recipe.batch": 64, "recipe.lr": LR, "first": 0, "ratio": 1.0}
    cfg, clients = method.configure(settings), opposite((10, 6, 12, 8))
    fleet, state = fleet_of(method, cfg, clients)
    begin, model = state.models[0], fleet.home.model
    ends = [descended(model, begin, client) for client in clients]
    changes = torch.stack([torch.cat([(end[n] - begin[n]).flatten() for n in begin]) for end in ends])
    alike = F.normalize(changes) @ F.normalize(changes).T

    def across(half: tuple[int, ...]) -> float:
        return max(float(alike[i, j]) for i in half for j in range(4) if j not in half)

    half = min((half for size in (1, 2) for half in combinations(range(4), size)), key=across)
    after = run(method, cfg, fleet, state, 1)
    assert len(after.models) == 2
    groups = method.clusters(after)
    assert len({groups[f"c{i}"] for i in half}) == 1
    for j in range(2):
        members = [i for i in range(4) if groups[f"c{i}"] == j]
        assert set(members) in (set(half), set(range(4)) - set(half))
        expected = average([ends[i] for i in members], tuple(len(clients[i][0]) for i in members))
        assert_close(after.models[j], expected, 1e-5)


def test_algorithm_4_cfl_a_late_client_walks_down_the_tree() -> None:
    """Two splits: a stranger passes the first, then the split of the half that it fell into, and never the other."""
    method = methods.load("cfl")
    settings = {"recipe.epochs": EPOCHS, "recipe.batch": 64, "recipe.lr": 0.5, "first": 2, "ratio": 0.5}
    cfg, clients = method.configure(settings), opposite((30, 30, 30, 30))
    fleet, state = fleet_of(method, cfg, clients)
    after = run(method, cfg, fleet, state, 6)
    assert [(one.old, one.new) for one in after.tree] == [(0, 1)]
    groups = method.clusters(after)
    late, _ = fleet_of(method, cfg, clients)  # the same rows, as clients that the server does not know
    unknown = dataclasses.replace(after, members={"c0": groups["c0"]})
    assert method.clusters(run(method, cfg, late, unknown, 1)) == groups
    third = dataclasses.replace(after.tree[0], old=1, new=2)  # the same question once more, for those that left
    deeper = dataclasses.replace(unknown, models=[*after.models, after.models[1]], tree=[*after.tree, third])
    late, _ = fleet_of(method, cfg, clients)
    found = method.clusters(run(method, cfg, late, deeper, 1))
    assert {c: {0: 0, 1: 2}[g] for c, g in groups.items() if c != "c0"} == {c: g for c, g in found.items() if c != "c0"}


def test_cfl_keeps_like_minded_clients_together() -> None:
    method = methods.load("cfl")
    cfg = method.configure({"recipe.batch": 64, "recipe.lr": 0.1, "first": 1})
    fleet, state = fleet_of(method, cfg, made((30, 30, 30, 30)))
    assert set(method.clusters(run(method, cfg, fleet, state, 4)).values()) == {0}


def test_cfl_criteria() -> None:
    """Equations (31) and (32) as printed, and as one ratio."""
    changes, examples = torch.tensor([[2.0, 0.1], [-2.0, 0.1], [2.0, 0.0], [-2.0, 0.0]]), torch.ones(4)
    assert cfl.splits(changes, examples, cfl.Config(ratio=0.1))
    assert not cfl.splits(changes, examples, cfl.Config(ratio=0.01))
    assert cfl.splits(changes, examples, cfl.Config(ratio=0.0, eps1=0.1, eps2=1.6))
    assert not cfl.splits(changes, examples, cfl.Config(ratio=0.0, eps1=0.1, eps2=2.5))
    assert cfl.second_half(changes).tolist() in ([False, True, False, True], [True, False, True, False])
