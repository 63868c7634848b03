"""ClusterFL: the specification's acceptance tests, the equations one by one, and what happens when things go wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from helpers.fleets import fleet_of, made, run
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

import potluck
from potluck import keys, methods
from potluck.data.made import opposite
from potluck.engines.local import Faults
from potluck.errors import BadInput
from potluck.fleet import Data, Local
from potluck.learn import Recipe, plain
from potluck.methods import clusterfl
from potluck.methods.clusterfl import Mine, Train
from potluck.methods.parts.clusterfl import relation
from potluck.methods.parts.clusterfl.dual import admm, mm
from potluck.methods.parts.clusterfl.savers import Finish
from potluck.methods.parts.clusterfl.table import kept
from potluck.models import build

METHOD = methods.load("clusterfl")
QUICK: dict[str, Any] = {"recipe.epochs": 2, "recipe.batch": 5, "recipe.lr": 0.05, "f_every": 2, "beta": 0.3}


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(keys.rng("clusterfl tests", seed).normal(size=shape))


def relation_of(count: int, seed: int = 0) -> torch.Tensor:
    """An F of random similarities, columns summing to 1."""
    return relation.normalised(random(count, count, seed=seed).abs())


# -- the collaborative variables (sections 3a and 3b) ----------------------------------------------------------------


@given(st.integers(2, 7), st.integers(1, 9), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_eq_5_row_form_equals_the_two_products(count: int, width: int, seed: int) -> None:
    """Acceptance 1: z_i = sum_j F_ij (rho Omega_j - U_j - rho sum_{q != i} F_qj w_q)."""
    f, w, omega = relation_of(count, seed), random(count, width, seed=seed + 1), random(count, width, seed=seed + 2)
    beta, rho = 0.7, 5.0
    z, lam, after = admm(f, w, omega, beta, rho)
    dual = -2.0 * beta * after
    for i in range(count):
        row = torch.zeros(width, dtype=torch.float64)
        for j in range(count):
            others = sum((f[q, j] * w[q] for q in range(count) if q != i), torch.zeros(width, dtype=torch.float64))
            row = row + f[i, j] * (rho * after[j] - dual[j] - rho * others)
        torch.testing.assert_close(z[i], row, atol=1e-10, rtol=1e-10)
        assert float(lam[i]) == pytest.approx(rho / 2 * float((f[i] ** 2).sum()))


def test_the_dual_is_minus_two_beta_omega_after_every_step() -> None:
    """Acceptance 2: the printed recursions of Omega and U, against the one that keeps Omega only."""
    beta, rho, f = 0.3, 2.0, relation_of(5)
    omega, dual = torch.zeros(5, 4, dtype=torch.float64), torch.zeros(5, 4, dtype=torch.float64)
    kept = omega
    for step in range(6):
        w = random(5, 4, seed=step)
        a = f.T @ w
        omega = (rho * a + dual) / (rho - 2 * beta)
        dual = dual + rho * (a - omega)
        torch.testing.assert_close(dual, -2 * beta * omega, atol=1e-12, rtol=1e-12)
        kept = admm(f, w, kept, beta, rho)[2]
        torch.testing.assert_close(kept, omega, atol=1e-12, rtol=1e-12)


def test_admm_settles_where_mm_is() -> None:
    """Acceptance 5: W frozen and rho = 10 beta, 50 steps."""
    beta, f, w = 0.4, relation_of(6), random(6, 5, seed=3)
    omega = torch.zeros_like(w)
    for _ in range(50):
        z, lam, omega = admm(f, w, omega, beta, 10 * beta)
    torch.testing.assert_close(z - 2 * lam[:, None] * w, mm(f, w, beta), rtol=1e-6, atol=1e-9)


def test_a_new_f_begins_at_its_fixed_point() -> None:
    beta, f, w = 0.4, relation_of(6), random(6, 5, seed=3)
    z, lam, omega = admm(f, w, None, beta, 10 * beta)
    torch.testing.assert_close(omega, f.T @ w)
    torch.testing.assert_close(z - 2 * lam[:, None] * w, mm(f, w, beta))


@pytest.mark.parametrize(("ratio", "shrinks"), [(1.0, False), (3.0, False), (4.2, True), (5.0, True), (10.0, True)])
def test_the_dual_contracts_above_four_beta_only(ratio: float, shrinks: bool) -> None:
    """Fig. 16c with W frozen: the distance to the fixed point is multiplied by 2 beta/(rho - 2 beta) in size."""
    beta, f, w = 0.5, relation_of(4), random(4, 3, seed=1)
    goal, omega = f.T @ w, torch.zeros(4, 3, dtype=torch.float64)
    far = []
    for _ in range(40):
        omega = admm(f, w, omega, beta, ratio * beta)[2]
        far.append(float((omega - goal).abs().max()))
    assert (far[-1] < far[0]) == shrinks
    assert far[1] / far[0] == pytest.approx(abs(2.0 / (ratio - 2.0)))


def test_mm_never_raises_the_objective() -> None:
    """The tangent of the concave term: minimising it exactly, with quadratic losses, goes down at every step."""
    beta, alpha, f = 0.5, 0.6, relation.given(["a", "b", "c", "d"], {"a": 0, "b": 0, "c": 1, "d": 1}).double()
    best, w = random(4, 3), torch.zeros(4, 3, dtype=torch.float64)

    def objective(w: torch.Tensor) -> float:
        return float(((w - best) ** 2).sum() + alpha * (w**2).sum() - beta * ((f.T @ w) ** 2).sum())

    values = [objective(w)]
    for _ in range(20):
        w = (2 * best + mm(f, w, beta)) / (2 + 2 * alpha)  # argmin of |w - best|^2 + alpha |w|^2 - z.w
        values.append(objective(w))
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(values))


# -- the cluster structure (section 4) --------------------------------------------------------------------------------


# -- the client's step (section 5) ------------------------------------------------------------------------------------


def _one_step(z: torch.Tensor, lam: float = 0.0, alpha: float = 0.0, lr: float = 0.1) -> tuple[Any, Any, Local]:
    model = build("softmax", (2,), 2, {})
    weights = model.init(0)
    data = Data(torch.tensor([[1.0, 2.0], [0.5, -1.0]]), torch.tensor([0, 1]), torch.ones(2))
    local = Local(model, data, Mine(weights, torch.zeros(())), keys.key(0))
    task = Train({}, z, torch.tensor(lam), alpha, 0.0, Recipe(epochs=1, batch=2, lr=lr), lr_decay=1.0)
    return weights, clusterfl.train(task, local), local


def test_eq_6_node_update() -> None:
    """w - lr (grad loss + 2 (alpha + lambda) w - z), on one batch."""
    z = torch.arange(6.0) / 10
    before, done, local = _one_step(z, lam=0.3, alpha=0.2)
    with plain():
        free = {name: value.clone().requires_grad_() for name, value in before.items()}
        loss = local.model.losses(local.model.logits(free, local.data.x), local.data.y).mean()
        gradient = torch.autograd.grad(loss, list(free.values()))
    flat = torch.cat([value.reshape(-1) for value in before.values()])
    slope = torch.cat([value.reshape(-1) for value in gradient])
    torch.testing.assert_close(done.update.weights, flat - 0.1 * (slope + 2 * 0.5 * flat - z))


def test_z_attracts() -> None:
    """The sign: a z along a direction moves w that way, and a larger z.w is a smaller objective."""
    still = _one_step(torch.zeros(6))[1].update.weights
    moved = _one_step(torch.ones(6))[1].update.weights
    torch.testing.assert_close(moved - still, torch.full((6,), 0.1))


@pytest.mark.parametrize(("rows", "epochs", "lr"), [(1, 1, 0.05), (37, 2, 0.4), (200, 3, 0.01)])
@pytest.mark.parametrize("coupling", [0.2, 0.5, 0.9])
def test_a_coupling_is_a_share_of_the_way(coupling: float, rows: int, epochs: int, lr: float) -> None:
    """Inputs of zero give no gradient for the matrix: whatever the steps, the pull alone moves it by that share."""
    model = build("softmax", (2,), 2, {})
    before = model.init(0)
    data = Data(torch.zeros(rows, 2), torch.zeros(rows, dtype=torch.int64), torch.ones(rows))
    recipe, goal = Recipe(epochs=epochs, batch=5, lr=lr), torch.arange(6.0)
    task = Train({}, goal, torch.zeros(()), 0.5, coupling, recipe, lr_decay=0.9)
    done = clusterfl.train(task, Local(model, data, Mine(before, torch.tensor(100.0)), keys.key(0)))
    start, after = before["fc.weight"], done.mine.weights["fc.weight"]
    torch.testing.assert_close(after, start + coupling * (goal[:4].reshape(2, 2) - start), atol=1e-4, rtol=1e-4)


def test_a_client_without_a_cluster_is_not_pulled_to_zero() -> None:
    """Alone in its cluster eq. (1) has (alpha - beta) |w|^2: with alpha = beta that is local training."""
    models = []
    for given_settings in ({"beta": 5.0}, {"beta": 0.0, "alpha": 0.0}, {"coupling": 0.9}):
        config = METHOD.configure({**{k: v for k, v in QUICK.items() if k != "beta"}, **given_settings})
        fleet, state = fleet_of(METHOD, config, made((12, 9, 15)))
        run(METHOD, config, fleet, state, 1)
        models.append(fleet.mine(0).weights["fc.weight"])
    for one in models[1:]:
        torch.testing.assert_close(one, models[0])


def test_the_wire_carries_w_and_a_loss_up_z_and_lambda_down() -> None:
    _, done, _ = _one_step(torch.zeros(6))
    assert done.update.weights.numel() == 6
    assert done.update.buffers.numel() == 0
    assert done.update.loss.dim() == 0


# -- the savers (section 6) -------------------------------------------------------------------------------------------


def _opposite(count: int = 8, each: int = 16) -> list[tuple[np.ndarray, np.ndarray]]:
    data = opposite(count, each)
    assert data.subject is not None
    return [(data.x[data.subject == s], data.y[data.subject == s]) for s in range(count)]


def test_dropped_clients_get_one_last_task() -> None:
    config = METHOD.configure({**QUICK, "savers": {"select": 3, "select_at": 4, "finish": 2}})
    fleet, state = fleet_of(METHOD, config, _opposite())
    state = run(METHOD, config, fleet, state, 10)
    tasks, _ = fleet.log.drain()
    assert len(state.dropped) == 3
    for client, one in state.dropped.items():
        programs = [task.program for task in tasks if task.client == client]
        assert programs == ["Train"] * 4 + ["Finish"]
        assert one.cause == "selection"
        assert client not in state.table.names  # removed from the matrices at the next F
    assert state.saved.skipped == 3 * 6
    assert state.saved.asked == 8 * 4 + 5 * 6
    figures = METHOD.record(state)
    assert figures["saved"]["bytes"] == 18 * 4 * (2 * state.table.weights.shape[1] + 2)
    assert figures["saved"]["seconds"] > 0
    assert set(METHOD.clusters(state)) == {f"c{i}" for i in range(8)}


def test_a_dropped_client_trains_alone_until_its_loss_settles() -> None:
    _, _, local = _one_step(torch.zeros(6))
    task = Train({}, torch.zeros(6), torch.zeros(()), 0.0, 0.0, Recipe(epochs=1, batch=2, lr=0.1), lr_decay=1.0)
    finish = clusterfl.PROGRAMS[Finish]
    moved = finish(Finish(task, 3, 0.0), local)
    stopped = finish(Finish(task, 3, 1e9), local)  # the first piece is the last that counts
    once = finish(Finish(task, 1, 0.0), local)
    assert float(moved.update.loss) < float(once.update.loss)
    assert torch.equal(stopped.mine.weights["fc.weight"], once.mine.weights["fc.weight"])


def test_a_straggler_is_dropped() -> None:
    """All losses stand still but that of c0, which the table shows as moving."""
    config = METHOD.configure({**QUICK, "savers": {"stragglers": True, "window": 2}})
    fleet, state = fleet_of(METHOD, config, _opposite())
    state = run(METHOD, METHOD.configure({**QUICK, "savers": {"window": 2}}), fleet, state, 4)
    calm = torch.full_like(state.table.moves, 1e-3)
    place = {name: i for i, name in enumerate(state.table.names)}
    calm[place["c0"]] = 5.0
    state = replace(state, table=replace(state.table, moves=calm))
    after = clusterfl.drop(fleet, state, config)
    assert {name: one.cause for name, one in after.dropped.items()} == {"c0": "straggler"}


def test_the_run_may_end_when_the_losses_have_settled() -> None:
    config = METHOD.configure({**QUICK, "stop_settled": True, "tolerance": 1e6})
    fleet, state = fleet_of(METHOD, config, made((9, 9, 9)))
    assert [one.round for one in METHOD.server(fleet, state, config)] == [1]  # F is there after the first round


# -- whole runs -------------------------------------------------------------------------------------------------------


def _accuracy(config: Any, rounds: int, clients: list[tuple[np.ndarray, np.ndarray]]) -> tuple[float, Any]:
    """Mean accuracy on rows that no client trained on, and the last state."""
    own, held = [(x[: len(y) // 4], y[: len(y) // 4]) for x, y in clients], clients
    fleet, state = fleet_of(METHOD, config, own, model=build("svm", own[0][0].shape[1:], 2, {}))
    state = run(METHOD, config, fleet, state, rounds)
    model, right = fleet.home.model, []
    for i, (x, y) in enumerate(held):
        weights = METHOD.personal(state, f"c{i}", fleet.mine(i))
        rest = slice(len(y) // 4, None)
        right.append(float((model.logits(weights, torch.from_numpy(x[rest])).argmax(-1).numpy() == y[rest]).mean()))
    return float(np.mean(right)), state


def test_opposite_label_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Acceptance 6: clusters recovered, accuracy at least local's; with alpha = beta = 1 the wrong sign is worse."""
    clients = _opposite(8, 80)
    local, _ = _accuracy(METHOD.configure({**QUICK, "recipe.epochs": 5, "beta": 0.0, "alpha": 0.0}), 8, clients)
    ours, state = _accuracy(METHOD.configure({**QUICK, "recipe.epochs": 5}), 8, clients)
    found = METHOD.clusters(state)
    assert adjusted_rand_score([i % 2 for i in range(8)], [found[f"c{i}"] for i in range(8)]) == 1.0
    assert ours >= local
    strong = METHOD.configure({**QUICK, "recipe.epochs": 5, "beta": 1.0, "alpha": 1.0})
    ridge, _ = _accuracy(replace(strong, beta=0.0), 8, clients)  # local training with the same ridge
    right, _ = _accuracy(strong, 8, clients)
    attraction = clusterfl.collaborate

    def repulsion(state: Any, cfg: Any) -> Any:
        z, lam, omega = attraction(state, cfg)
        return -z, lam, omega

    monkeypatch.setattr(clusterfl, "collaborate", repulsion)
    wrong, _ = _accuracy(strong, 8, clients)
    assert wrong < ridge <= right


def _experiment(tmp_path: Any, **sections: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "data": {"source": "potluck.data.made:opposite"},
        "partition": {"kind": "subject", "split": "random", "valid_share": 0.2},
        "fleet": {"devices": "raspberry-pi-4"},
        "model": {"name": "softmax"},
        "method": {"name": "clusterfl", "recipe.epochs": 2, "recipe.batch": 5, "recipe.lr": 0.05, "beta": 0.3},
        "stop": {"rounds": 12},
        "run": {"out": str(tmp_path), "evaluate_every": 4},
    }
    return {name: {**base.get(name, {}), **sections.get(name, {})} for name in base | sections}


def test_beats_fedavg_by_ten_points_where_names_are_opposite(tmp_path: Any) -> None:
    ours = potluck.run(_experiment(tmp_path))
    theirs = potluck.run(
        {
            **_experiment(tmp_path),
            "method": {"name": "fedavg", "recipe.epochs": 2, "recipe.batch": 5, "recipe.lr": 0.05},
        }
    )
    assert ours.summary["accuracy"]["mean"] >= theirs.summary["accuracy"]["mean"] + 0.10
    clusters = {row["client"]: row["cluster"] for row in ours.table("clusters")}
    assert adjusted_rand_score([name.split("-")[0] for name in clusters], list(clusters.values())) == 1.0


def test_beta_auto_is_chosen_on_validation_rows(tmp_path: Any) -> None:
    chosen = {"beta": "auto", "tuning.candidates": [0.01, 0.3], "tuning.trial_rounds": 6}
    ended = potluck.run(_experiment(tmp_path, method=chosen, stop={"rounds": 9}))
    records = {row["name"]: row["value"] for row in ended.table("records")}
    assert records["beta"] in ("0.01", "0.3")
    assert set(json.loads(records["validation"])) == {"0.01", "0.3"}
    programs = [row["program"] for row in ended.table("tasks")]
    assert programs.count("Check") == 2 * 12
    assert programs.count("Train") == (2 * 6 + 3) * 12  # the best candidate goes on where its trial ended
    with pytest.raises(BadInput, match="valid_share"):
        potluck.run(_experiment(tmp_path, method=chosen, partition={"valid_share": 0.0}))


@pytest.mark.parametrize(("source", "mode"), [("clients", "mm"), ("noise", "admm"), ("server", "mm")])
def test_probes_of_every_source_find_the_groups(source: str, mode: str, tmp_path: Any) -> None:
    server = {"share": 0.1} if source == "server" else {}
    ended = potluck.run(_experiment(tmp_path, method={"probe.source": source, "mode": mode}, server=server))
    clusters = {row["client"]: row["cluster"] for row in ended.table("clusters")}
    assert adjusted_rand_score([name.split("-")[0] for name in clusters], list(clusters.values())) == 1.0
    offers = [row for row in ended.table("tasks") if row["program"] == "Offer"]
    assert len(offers) == (12 if source == "clients" else 0)


# -- when things go wrong (section 8) ---------------------------------------------------------------------------------


def test_one_client_alone_trains_locally() -> None:
    config = METHOD.configure(QUICK)
    fleet, state = fleet_of(METHOD, config, made((12,)))
    state = run(METHOD, config, fleet, state, 5)
    assert torch.equal(state.structure.F, torch.zeros(1, 1))
    assert METHOD.clusters(state) == {"c0": 0}


def test_a_client_that_never_reports_is_in_no_matrix() -> None:
    config = METHOD.configure(QUICK)
    leaves = np.array([np.inf, np.inf, 1e-9])
    fleet, state = fleet_of(METHOD, config, made((12, 9, 15)), leaves=leaves)
    state = run(METHOD, config, fleet, state, 5)
    assert state.table.names == ("c0", "c1")
    assert state.structure.F.shape == (2, 2)


def test_what_is_not_finite_is_refused_and_the_row_stays() -> None:
    config = METHOD.configure(QUICK)
    fleet, state = fleet_of(METHOD, config, made((12, 9, 15, 11)), faults=Faults(nan=0.4))
    program = METHOD.server(fleet, state, config)
    for _ in range(8):
        before, state = state, next(program)
        tasks, _ = fleet.log.drain()
        known = {name: i for i, name in enumerate(before.table.names)}
        for i, name in enumerate(state.table.names):
            if name in known and any(t.client == name and t.outcome == "refused" for t in tasks):
                assert torch.equal(state.table.weights[i], before.table.weights[known[name]])
                assert torch.equal(state.table.moves[i], before.table.moves[known[name]])
    assert bool(torch.isfinite(state.table.weights).all())
    assert bool(torch.isfinite(state.structure.F).all())


def test_a_new_client_learns_alone_until_the_next_f() -> None:
    config = METHOD.configure({**QUICK, "mode": "admm", "f_every": 3})
    fleet, state = fleet_of(METHOD, config, made((12, 9, 15)))
    state = run(METHOD, config, fleet, state, 3)
    first = replace(state.structure, F=state.structure.F[:2, :2], cluster=(0, 0))
    two = kept(state.table, torch.tensor([0, 1]))
    late = replace(state, table=two, structure=first, omega=torch.zeros(2, 0))
    after = next(METHOD.server(fleet, late, config))
    assert after.structure.F.shape == (3, 3)
    assert bool((after.structure.F[2] == 0).all())
    assert after.omega.shape == after.table.weights.shape


def test_a_client_that_cannot_train_gets_the_mean_of_the_largest_cluster() -> None:
    config = METHOD.configure(QUICK)
    fleet, state = fleet_of(METHOD, config, made((12, 9, 15, 11)))
    assert METHOD.module.received(state, "other") is None  # before any report there is nothing but the start
    state = run(METHOD, config, fleet, state, 2)
    state = replace(state, structure=replace(state.structure, cluster=(0, 1, 1, 2)))
    two = [fleet.mine(i).weights["fc.weight"] for i in (1, 2)]
    torch.testing.assert_close(METHOD.module.received(state, "other")["fc.weight"], (two[0] + two[1]) / 2)


def test_the_guard_keeps_the_objective_bounded() -> None:
    """alpha >= beta sigma_max(F)^2 whatever F is learned; off, F stays as it is."""
    for guard in (True, False):
        config = METHOD.configure({**QUICK, "guard": guard, "relation.scaling": "columns"})
        fleet, state = fleet_of(METHOD, config, made((12, 9, 15, 11, 8)))
        state = run(METHOD, config, fleet, state, 4)
        bound = state.alpha / (state.beta * relation.spread(state.structure.F) ** 2)
        assert (bound >= 1.0 - 1e-5) or not guard
        if not guard:
            torch.testing.assert_close(state.structure.F.sum(0), torch.ones(5))
