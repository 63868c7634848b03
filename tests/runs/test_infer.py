"""What a client infers with: the model it would receive, its own, and what it gets if it never trained."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.short_runs import experiment_of, tiny

from potluck import methods
from potluck.engines.chunks import Job
from potluck.engines.execute import Executor
from potluck.errors import BadInput
from potluck.fleet import Data, Done, Params
from potluck.methods.fedavg import State
from potluck.methods.parts.echopfl.clusters import largest
from potluck.models import build as build_model
from potluck.runs import drive
from potluck.runs.build import build
from potluck.runs.evaluate import Evaluator
from potluck.runs.infer import PERSONAL, START, Client, model_of, models_of
from potluck.runs.local_session import LocalSession
from potluck.runs.watcher import Silent
from potluck.tensors import mean
from potluck.testing.loopback import Loopback, machines, owners, staged

KEEP_A_PART = ("fedper", "fedrep", "fedbn", "lgfedavg", "fedproto", "fedbits")  # the server never has a whole model
ABSENT = "s05"  # joins after all rounds: it never trains


def session_after(method: str, folder: Path, /, rounds: int = 2, **sections: Any) -> tuple[LocalSession, Any]:
    session = build(experiment_of(method, tiny(folder / "tiny.npz"), rounds, **sections))
    state = session.method.start(session.weights, session.config)
    program = session.method.server(session.fleet, state, session.config)
    while state.round < rounds:
        state = next(program)
    return session, state


def same(a: Params, b: Params) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# -- the model as training left it --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "balancefl", "ftl"])
def test_the_mean_of_the_own_models_is_what_the_server_aggregated(method: str, tmp_path: Path) -> None:
    session, state = session_after(method, tmp_path, rounds=1)
    places = range(len(session.federation.names))
    own = [session.fleet.kept.own(place) for place in places]
    assert all(model is not None for model in own)
    expected = mean([model for model in own if model], [torch.tensor(session.federation.sizes[p]) for p in places])
    for name, value in expected.items():
        torch.testing.assert_close(state.weights[name], value)


def test_scaffolds_change_is_the_way_from_the_sent_model_to_the_own_one(tmp_path: Path) -> None:
    session, state = session_after("scaffold", tmp_path, rounds=1)
    own = [session.fleet.kept.own(place) for place in range(len(session.federation.names))]
    for name, value in mean([model for model in own if model]).items():  # equal weights, eta_g = 1
        torch.testing.assert_close(state.weights[name], value)


def test_own_models_are_kept_of_evaluated_clients_only_and_as_copies(tmp_path: Path) -> None:
    session, _ = session_after("fedavg", tmp_path, run={"evaluate_clients": 2})
    saved = session.fleet.kept.snapshot()
    assert sorted(saved["own"]) == sorted(session.evaluator.places)
    assert len(saved["own"]) == 2
    for model in saved["own"].values():
        assert all(value.untyped_storage().nbytes() == value.numel() * 4 for value in model.values())


def test_own_shares_the_tensors_of_the_update() -> None:
    """So it costs neither memory nor bytes between processes."""
    model = build_model("softmax", (2,), 3)

    def train(task: Data, local: Any) -> Done:
        weights = {name: value * 2 + task.x.sum() for name, value in local.mine.items()}
        return Done(task, carry=weights, own=weights)

    def rows(places: Any, capacity: int) -> Data:
        shape = (len(places), capacity)
        return Data(torch.zeros(*shape, 2), torch.zeros(shape, dtype=torch.int64), torch.ones(shape))

    task = Data(torch.ones(1), torch.zeros(1), torch.zeros(1))
    executor = Executor(model, {Data: train}, {"Data": Data}, rows)
    jobs = [Job(n, n, 1, task, n, mine=model.init(n), own=n != 2) for n in range(4)]
    results = executor.run(jobs)
    assert not executor.notes
    for n, result in results.items():
        own = result.done.own
        assert (own is None) == (n == 2)
        assert own is None or all(value is result.done.carry[name] for name, value in own.items())
        assert own is None or same(own, {name: value * 2 + 1 for name, value in model.init(n).items()})


# -- clients that never trained -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", methods.METHODS)
def test_a_client_that_never_trained_gets_the_best_its_method_can_give(method: str, tmp_path: Path) -> None:
    session, state = session_after(method, tmp_path, fleet={"joins": {ABSENT: 1e9}})
    place = session.federation.names.index(ABSENT)
    assert not session.fleet.kept.trained(place)
    got = session.personal(state, place, ABSENT)
    scored = session.evaluate(state).untrained
    _check_headline(session, state)
    if method in ("local", "standalone", "fedmd"):  # the server has no model that was trained
        assert scored == {ABSENT: START}
        assert same(got, session.weights)
        return
    if method in KEEP_A_PART:  # trained layers from the server, and the first ones of its own
        assert scored == {ABSENT: PERSONAL}
        assert not same(got, session.weights)
        return
    assert scored == {ABSENT: "received"}
    assert not same(got, session.weights)
    if method == "fedcfc":  # pre-trained on the server rows
        assert same(got, state.starts[0])
    elif method == "clusterfl":  # the mean of the largest cluster
        numbers = state.structure.cluster
        most = max(sorted(set(numbers)), key=numbers.count)
        rows = [i for i, k in enumerate(numbers) if k == most]
        weights = torch.cat([got[name].flatten() for name in state.trained])
        torch.testing.assert_close(weights, state.table.weights[rows].mean(0))
    elif method == "echopfl":
        assert same(got, state.grouping.clusters[largest(state.grouping)].weights) or state.grouping.newcomers_have
    elif method == "centralised_clusters":
        assert any(same(got, one) for one in state.models.values())
    elif method in ("ifca", "cfl"):
        assert any(same(got, one) for one in state.models)
    elif method == "fedamp":  # the mean of all models
        weights = torch.cat([got[name].flatten() for name in state.tensors])
        torch.testing.assert_close(weights, state.models.mean(0))
    elif method in ("heterofl", "fedrolex", "fedconv"):
        assert same(got, state.given.models[str(state.given.widths[ABSENT])])
    else:
        shared = session.method.shared(state)
        assert shared is not None
        assert same(got, shared)


def _check_headline(session: LocalSession, state: Any) -> None:
    """Every method says what its headline is. Where it is the own model, no copy is kept; else one is, of trainers."""
    name, kind = session.method.name, session.method.headline(session.config)
    own, found = session.fleet.kept.own(0), session.evaluate(state)
    assert kind in methods.HEADLINES
    assert (own is None) == (kind == "own" or name in ("ap", "centralised", "centralised_clusters", "serveralone"))
    if own is not None:
        models = [session.fleet.kept.own(i) or session.personal(state, i, one) for i, one in enumerate(found.clients)]
        assert found.others["own"].having == 5
        np.testing.assert_allclose(found.others["own"].accuracy, session.evaluator(models, None).accuracy)
    if kind == "received" and name != "echopfl":  # its clients have the newest broadcast, which may be older
        given = session.method.received(state, found.clients[0])
        assert given is not None
        assert same(given, session.personal(state, 0, found.clients[0]))


def test_clusterfls_centre_is_z_without_its_factor(tmp_path: Path) -> None:
    settings = {"f_every": 1, "beta": 0.1, "relation": {"similarity": "weights"}}
    session, state = session_after("clusterfl", tmp_path, method=settings, fleet={"joins": {ABSENT: 1e9}})
    shares = state.structure.F @ state.structure.F.T
    rows = shares / shares.sum(1, keepdim=True)
    for i, client in enumerate(state.table.names):
        got = session.method.received(state, client)
        assert got is not None
        torch.testing.assert_close(torch.cat([got[n].flatten() for n in state.trained]), rows[i] @ state.table.weights)
    numbers = list(state.structure.cluster)
    most = [i for i, k in enumerate(numbers) if k == max(sorted(set(numbers)), key=numbers.count)]
    stranger = session.method.received(state, ABSENT)
    assert stranger is not None
    expected = state.table.weights[most].mean(0)
    torch.testing.assert_close(torch.cat([stranger[n].flatten() for n in state.trained]), expected)


def test_one_function_decides() -> None:
    method = methods.load("local")
    start = {"w": torch.ones(2)}
    first, mine = (method.private(weights, method.config()) for weights in (start, {"w": torch.zeros(2)}))
    assert model_of(method, None, "c", first, trained=False, start=start) == (start, START)
    model, scored = model_of(method, None, "c", mine, trained=True, start=start)
    assert (scored, model["w"].tolist()) == ("", [0.0, 0.0])
    # A method without a model for all, part of whose personal model the server has.
    assert model_of(method, None, "c", mine, trained=False, start=start)[1] == "personal"
    assert model_of(methods.load("fedavg"), State(start), "c", None, trained=False, start=start) == (start, "received")


def test_a_client_without_an_own_model_falls_back_on_what_it_is_scored_with() -> None:
    method = methods.load("fedavg")
    state = method.start({"w": torch.zeros(1)}, method.config())
    own = {"w": torch.ones(1)}
    clients = [Client("a", None, True, own), Client("b", None, False)]
    found = models_of(method, method.config(), state, state.weights, clients)
    assert (found.kind, found.untrained) == ("received", {"b": "received"})
    assert found.others["own"][0] is own
    assert found.others["own"][1] is state.weights
    assert found.having == {"own": 1, "received": 2}


# -- a run ----------------------------------------------------------------------------------------------------------


def test_a_resumed_run_has_the_same_figures(tmp_path: Path) -> None:
    data = tiny(tmp_path / "tiny.npz")
    tables = ("infers_with", "inferred", "untrained")
    changes: dict[str, Any] = {
        "faults": {"dropout": 0.3},
        "method": {"cohort": 3},
    }
    whole = drive.start(experiment_of("fedavg", data, 5, run={"out": str(tmp_path / "a")}, **changes))
    half = drive.start(experiment_of("fedavg", data, 2, run={"out": str(tmp_path / "b")}, **changes))
    half = drive.resume(half.folder, rounds=5)
    for name in tables:
        assert half.table(name) == whole.table(name), name
    assert {row["step"] for row in whole.table("infers_with")} == set(range(6))
    assert half.summary["infers_with"] == whole.summary["infers_with"]


def test_the_summary_has_both_means_and_both_models(tmp_path: Path) -> None:
    out = {"run": {"out": str(tmp_path)}, "fleet": {"joins": {ABSENT: 1e9}}}
    run = drive.start(experiment_of("fedavg", tiny(tmp_path / "tiny.npz"), 3, **out))
    summary = run.summary
    each, infers = summary["per_client"], summary["infers_with"]
    trained = [value for client, value in each.items() if client != ABSENT]
    assert summary["untrained_clients"] == {ABSENT: "received"}
    assert summary["accuracy_trained"]["mean"] == pytest.approx(np.mean(trained))
    assert summary["accuracy_trained"]["clients"] == 5
    assert infers["headline"] == "received"
    assert infers["received"]["mean"] == summary["accuracy"]["mean"]
    own = {row["client"]: row["accuracy"] for row in run.table("inferred") if row["step"] == 3}
    assert infers["own"]["mean"] == pytest.approx(np.mean(list(own.values())))
    assert infers["own"]["clients"] == 5
    assert own[ABSENT] == each[ABSENT]


def test_lists_of_the_same_objects_share_their_forward_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session, state = session_after("fedavg", tmp_path)
    measured: list[int] = []
    measure = Evaluator._measure
    monkeypatch.setattr(
        Evaluator,
        "_measure",
        lambda self, models, *given: measured.append(len(models)) or measure(self, models, *given),  # type: ignore[func-returns-value]
    )
    session.evaluate(state)
    trained = sum(session.fleet.kept.trained(place) for place in session.evaluator.places)
    assert sum(measured) == len(session.evaluator.clients) + trained  # shared and received are one; own is the other


def test_clients_on_machines_of_their_own_evaluate_both(tmp_path: Path) -> None:
    """The model as training left it never crosses the wire; its figures are those of the local engine."""
    experiment = experiment_of("scaffold", tiny(tmp_path / "tiny.npz"), run={"out": str(tmp_path / "runs")})
    here = drive.start(experiment).summary
    homes = machines(experiment, tmp_path / "machines", **owners(experiment))
    (tmp_path / "run").mkdir()
    there = drive.carry_out(tmp_path / "run", staged(experiment, Loopback(homes)), Silent()).summary
    assert there["infers_with"]["headline"] == "received"
    assert there["infers_with"]["own"] == pytest.approx(here["infers_with"]["own"])
    assert there["accuracy_trained"] == pytest.approx(here["accuracy_trained"])
    assert there["untrained_clients"] == {}


@pytest.mark.slow
def test_processes_give_the_same_own_models(tmp_path: Path) -> None:
    alone, _ = session_after("fedavg", tmp_path)
    others, _ = session_after("fedavg", tmp_path, run={"workers": "processes:2"})
    try:
        for place in range(6):
            a, b = alone.fleet.kept.own(place), others.fleet.kept.own(place)
            assert a is not None
            assert b is not None
            assert same(a, b)
    finally:
        others.close()


# -- methods that say it wrongly ------------------------------------------------------------------------------------


def test_a_wrong_headline_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "odd.py"
    file.write_text(
        textwrap.dedent("""
            from potluck.methods.fedavg import *
            from potluck.methods.fedavg import Config, State, PROGRAMS, server, shared, start
            HEADLINE = "mine"
        """)
    )
    with pytest.raises(BadInput, match="HEADLINE must be received, own or mixed, got 'mine'"):
        methods.load(str(file))


def test_own_must_be_weights_by_name(tmp_path: Path) -> None:
    file = tmp_path / "odd.py"
    file.write_text(
        textwrap.dedent("""
            from dataclasses import replace
            from potluck.methods import fedavg
            from potluck.methods.fedavg import Config, State, Train, Trained, server, shared, start
            def train(task, local):
                done = fedavg.train(task, local)
                return replace(done, own=done.update)
            PROGRAMS = {Train: train}
        """)
    )
    with pytest.raises(BadInput, match=r"odd\.train: own must be a dict of weights by name, .* got Trained"):
        session_after(str(file), tmp_path)
