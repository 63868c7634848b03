"""Newcomers: clients that took no part in training, and what each method gives them with few labelled rows."""

from __future__ import annotations

import dataclasses
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import potluck
from potluck import methods, report
from potluck.cli import ranking, text
from potluck.data.split import TEST
from potluck.deploy.server import open_session
from potluck.engines import price
from potluck.errors import BadInput
from potluck.runs import build as build_module
from potluck.runs import drive, newcomers
from potluck.runs.build import build
from potluck.runs.deal import federation_of
from potluck.runs.experiment import Experiment
from potluck.runs.local_session import LocalSession
from potluck.runs.results import Run
from potluck.runs.watcher import Progress, Silent

VALUES: dict[str, Any] = {
    "data": {"source": "made"},
    "partition": {"test_share": 0.3},
    "model": {"name": "mlp", "hidden": [8]},
    "method": {"name": "fedavg", "recipe": {"epochs": 1, "lr": 0.1}},
    "fleet": {"devices": "raspberry-pi-4"},
    "server": {"share": 0.1},
    "stop": {"rounds": 4},
    "newcomers": {"share": 0.25, "rows": [0, 1, 3], "rounds": 3},
}


def of(**sections: Any) -> Experiment:
    return Experiment.of({**VALUES, **{name: {**VALUES.get(name, {}), **part} for name, part in sections.items()}})


def trained(experiment: Experiment) -> tuple[LocalSession, Any]:
    """A session and its state after the rounds of the experiment."""
    session = build(experiment)
    first = session.method.start(session.weights, session.config)
    steps = session.method.server(session.fleet, first, session.config)
    return session, next(state for state in steps if state.round >= 4)


def test_newcomers_take_no_part_in_training(tmp_path: Path) -> None:
    run = potluck.run(of(run={"out": str(tmp_path), "name": "one"}))
    found = run.summary["newcomers"]
    new = found["rows"]["0"]["per_client"].keys()
    assert len(new) == found["clients"] == 3
    assert run.summary["clients"] == 9
    assert not new & run.summary["per_client"].keys()
    assert not new & {row["client"] for row in run.table("tasks")}


def test_the_others_train_on_their_rows_as_without_newcomers() -> None:
    """Who is a newcomer changes no row of another client, nor how it is standardised."""
    everyone, session = federation_of(of()), build(of())
    for place, name in enumerate(session.federation.names):
        before = list(everyone.names).index(name)
        for part in ("train", "test"):
            ours, theirs = session.federation.materialise(place, part), everyone.materialise(before, part)
            np.testing.assert_array_equal(ours[0], theirs[0])
            np.testing.assert_array_equal(ours[1], theirs[1])


@pytest.mark.parametrize("rows", [1, 3])
def test_a_newcomer_has_so_many_rows_of_each_class_and_no_test_row(rows: int) -> None:
    divided = build(of()).divided
    assert divided is not None
    few = divided.newcomers(rows, seed=0)
    labels = divided.whole.dataset.y
    for place, whole in enumerate(divided.new):
        mine = few.train_rows(place)
        own = divided.whole.train_rows(int(whole))
        assert set(mine) <= set(own)
        assert not (divided.whole.side[mine] == TEST).any()
        counts = np.bincount(labels[mine], minlength=4)
        np.testing.assert_array_equal(counts, np.minimum(rows, np.bincount(labels[own], minlength=4)))
        assert few.valid_sizes[place] == 0
        assert set(divided.newcomers(1, seed=0).train_rows(place)) <= set(mine)


def test_labels_of_test_rows_do_not_change_a_newcomers_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The accuracy of a newcomer whose test labels all moved by one class is that of the same model."""
    found = []
    for moved in (0, 1):
        session, state = trained(of(method={"name": "ditto"}))
        divided = session.divided
        assert divided is not None
        data = divided.whole.dataset
        side = divided.whole.side == TEST
        data.y[side] = (data.y[side] + moved) % data.classes
        kept: list[Any] = []
        models = newcomers._models
        monkeypatch.setattr(
            newcomers, "_models", lambda *args, keep=kept, make=models: keep.append(make(*args)) or keep[-1]
        )
        newcomers.measured(session, state)
        monkeypatch.undo()
        data.y[side] = (data.y[side] - moved) % data.classes
        found.append([weights for one in kept for weights in one.headline])
    for a, b in zip(*found, strict=True):
        assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("name", ["fedavg", "ditto", "fedrep", "perfedavg", "apfl", "fedala", "ifca", "local"])
def test_without_rows_a_newcomer_has_what_the_server_can_give(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    session, state = trained(of(method={"name": name}, newcomers={"rows": [0]}))
    seen: list[Any] = []
    models = newcomers._models
    monkeypatch.setattr(newcomers, "_models", lambda *args: seen.append(models(*args)) or seen[-1])
    newcomers.measured(session, state)
    method = methods.load(name)
    for client, weights in zip(build_names(session), seen[0].headline, strict=True):
        given = method.received(state, client)
        mine = method.private(session.weights, session.config)
        wanted = method.personal(state, client, mine) if given is None else given
        assert all(torch.equal(weights[key], wanted[key]) for key in wanted)


def build_names(session: LocalSession) -> list[str]:
    assert session.divided is not None
    return [session.divided.whole.names[int(i)] for i in session.divided.new]


def test_with_rows_a_newcomer_of_ditto_has_its_own_model_and_one_of_fedavg_the_shared_one() -> None:
    accuracy = {}
    for name in ("fedavg", "ditto"):
        session, state = trained(of(method={"name": name}))
        found = newcomers.measured(session, state)
        assert found is not None
        accuracy[name] = {count: one["per_client"] for count, one in found["rows"].items()}
        assert found["rows"]["3"]["trained"] == found["clients"]
        assert (found["rows"]["3"]["own"] is None) == (name == "ditto")
    assert accuracy["fedavg"]["0"] == accuracy["fedavg"]["1"] == accuracy["fedavg"]["3"]
    assert accuracy["ditto"]["3"] != accuracy["ditto"]["0"]


def test_a_newcomer_of_ifca_gets_the_model_of_the_cluster_that_suits_its_rows() -> None:
    """Half of the clients call each class by another name, so the model of the other half is of no use."""
    few = {"rows": [0, 3], "rounds": 1}
    session, state = trained(of(method={"name": "ifca"}, newcomers=few))
    divided = session.divided
    assert divided is not None
    y, turned = divided.whole.dataset.y, {}
    for model in range(2):  # a state whose two models were trained on labels that differ
        turned[model] = torch.roll(torch.arange(4), model)
    weights = state.models[0]
    last = [name for name in weights if weights[name].shape[:1] == (4,)]
    other = {name: value[turned[1]] if name in last else value for name, value in weights.items()}
    state = dataclasses.replace(state, models=[weights, other], members={"a": 0, "b": 1, "c": 1})
    found = newcomers.measured(session, state)
    assert found is not None
    assert y.max() == 3
    assert found["rows"]["0"]["mean"] < 0.5  # the largest cluster has the turned model
    assert found["rows"]["3"]["mean"] > found["rows"]["0"]["mean"] + 0.2


@pytest.mark.parametrize("counted", [True, False])
def test_newcomers_of_an_asynchronous_method_train_for_as_many_rounds_as_said(
    counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EchoPFL's rounds are arrivals by clients, and newcomers are clients. Where it counts none, tasks end a round."""
    session, state = trained(of(method={"name": "echopfl", "broadcast.predictor": "always"}, stop={"rounds": 12}))
    visit = newcomers._visitors(session, session.divided, 1)
    if not counted:
        monkeypatch.setattr(visit.method.module, "push", lambda grouping, *rest: grouping)
    sent: list[str] = []
    send = visit.fleet.send
    visit.fleet.send = lambda task, to, legs=1: (sent.append(to), send(task, to, legs))[1]  # type: ignore
    newcomers._trained(visit, session.fleet.now, state, rounds=1)
    assert set(sent) == set(visit.federation.names)
    assert len(sent) <= (2 * len(visit.fleet.clients) if counted else 25 * len(visit.federation.names))


def test_measuring_changes_nothing_and_gives_the_same_again() -> None:
    session, state = trained(of(method={"name": "apfl"}))
    before, now = {name: value.clone() for name, value in state.weights.items()}, session.fleet.now
    first, again = (newcomers.measured(session, state) for _ in range(2))
    assert first == again
    assert session.fleet.now == now
    assert all(torch.equal(before[name], state.weights[name]) for name in before)


def test_tasks_that_were_priced_in_training_are_not_priced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A newcomer's tasks cost what those of the others do, and the figures are those of prices counted anew."""
    session, state = trained(of(method={"name": "ditto"}))
    counted: list[type] = []
    real = price.count
    monkeypatch.setattr(
        price, "count", lambda program, task, *rest: counted.append(type(task)) or real(program, task, *rest)
    )
    shared = newcomers.measured(session, state)
    assert not counted
    monkeypatch.setattr(newcomers, "assembled", lambda *args, prices, **others: build_module.assembled(*args, **others))
    assert newcomers.measured(session, state) == shared
    assert counted


def test_a_resumed_run_measures_the_same(tmp_path: Path) -> None:
    def made(name: str) -> Experiment:
        return of(method={"name": "fedrep"}, run={"out": str(tmp_path), "name": name, "checkpoint_seconds": 0.0})

    whole = potluck.run(made("whole"))
    paused = drive.start(made("paused"), pause=0.5)
    assert paused.summary["newcomers"] is None
    resumed = drive.resume(paused.folder)
    assert resumed.summary["newcomers"] == whole.summary["newcomers"]
    assert Run(resumed.folder).summary["accuracy"] == whole.summary["accuracy"]


def test_processes_that_train_give_the_same(tmp_path: Path) -> None:
    alone, many = (
        potluck.run(of(run={"out": str(tmp_path), "name": str(i), "workers": workers}))
        for i, workers in enumerate((1, "processes:2"))
    )
    assert alone.summary["newcomers"] == many.summary["newcomers"]


def test_runs_on_validation_rows_have_the_same_newcomers_and_measure_none(tmp_path: Path) -> None:
    valid = of(partition={"valid_share": 0.2}, run={"evaluate_on": "valid", "out": str(tmp_path), "name": "v"})
    ours, theirs = build(of()).divided, build(valid).divided
    assert ours is not None
    assert theirs is not None
    np.testing.assert_array_equal(ours.new, theirs.new)
    assert potluck.run(valid).summary["newcomers"] is None


def test_no_more_are_measured_than_evaluated() -> None:
    session, state = trained(of(run={"evaluate_clients": 2}))
    found = newcomers.measured(session, state)
    assert found is not None
    assert found["clients"] == len(found["rows"]["3"]["per_client"]) == 2


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        ({"newcomers": {"share": 1.0}}, r"newcomers\.share: .*less than 1"),
        ({"newcomers": {"share": -0.1}}, r"newcomers\.share: "),
        ({"newcomers": {"rows": [-1]}}, r"newcomers\.rows: .*0 to 100000"),
        ({"newcomers": {"rows": []}}, r"newcomers\.rows: "),
        ({"newcomers": {"rounds": 0}}, r"newcomers\.rounds: "),
        (
            {"run": {"engine": "flower-sim"}},
            r"newcomers\.share: must be 0 with run\.engine = 'flower-sim', got 0\.25\.",
        ),
        ({"drift": {"at": [1.0], "kind": "labels"}}, r"newcomers\.share: must be 0 with drift\.at, got 0\.25\."),
    ],
)
def test_what_cannot_be_is_refused(sections: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        of(**sections)


def test_a_share_that_leaves_nobody_to_train_is_refused() -> None:
    with pytest.raises(
        BadInput, match=r"newcomers\.share: must be a share that leaves clients to train, of 12 clients"
    ):
        build(of(newcomers={"share": 0.99}))


def test_a_deployment_refuses_newcomers() -> None:
    with pytest.raises(BadInput, match=r"newcomers\.share: must be 0 in a deployment, got 0\.25"):
        open_session.check(of())


def test_reports_and_tables_show_newcomers(tmp_path: Path) -> None:
    runs = [
        potluck.run(of(method={"name": name}, run={"out": str(tmp_path), "name": name})) for name in ("ditto", "local")
    ]
    compared = report.compare(runs)
    (mine,) = [line for line in compared.newcomers if line.method == "ditto"]
    assert mine.accuracy == {int(n): one["mean"] for n, one in runs[0].summary["newcomers"]["rows"].items()}
    page = report.write(runs, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "3 clients that took no part in training" in page
    assert "3 newcomers, which took no part in training: " in text.result(runs[0])
    table = ranking.newcomers(compared)
    assert table is not None
    assert [column.header for column in table.columns][1:] == [
        "no labelled rows",
        "1 row of each class",
        "3 rows of each class",
    ]


def test_runs_without_newcomers_show_none(tmp_path: Path) -> None:
    run = potluck.run(of(newcomers={"share": 0.0}, run={"out": str(tmp_path), "name": "none"}))
    assert run.summary["newcomers"] is None
    assert not report.compare([run]).newcomers
    assert "newcomer" not in text.result(run)
    assert 'id="newcomers"' not in report.write([run], tmp_path / "report.html").read_text(encoding="utf-8")


def test_an_interrupted_run_measures_them_once_it_goes_on(tmp_path: Path) -> None:
    class Stops(Silent):
        def step(self, progress: Progress) -> None:
            if progress.step == 2:
                signal.raise_signal(signal.SIGINT)

    interrupted = drive.start(of(run={"out": str(tmp_path), "name": "one"}), Stops())
    assert interrupted.summary["ended"] == "interrupted"
    assert interrupted.summary["newcomers"] is None
    whole = potluck.run(of(run={"out": str(tmp_path), "name": "whole"}))
    assert drive.resume(interrupted.folder).summary["newcomers"] == whole.summary["newcomers"]
