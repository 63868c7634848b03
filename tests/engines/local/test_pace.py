"""The pace of devices: duty cycles, rows that arrive, and passes over them, as a whole fleet keeps them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import potluck
from potluck.engines.local.pace import Rules
from potluck.errors import BadInput
from potluck.fleet import Arrival
from potluck.runs import drive
from potluck.runs.build import build
from potluck.runs.experiment import Experiment
from tests.runs.test_drive import contents, small

PACED = {"devices": "boards", "rows_per_hour": 3600.0, "passes": 6.0}


def of(method: str = "fedavg", epochs: int = 2, **sections: Any) -> Experiment:
    values: dict[str, Any] = {
        "data": {"source": "potluck.testing.samples:few", "standardise": "none"},
        "partition": {"sizes": [4, 7, 12, 1]},
        "model": {"name": "softmax"},
        "method": {"name": method, "recipe": {"epochs": epochs, "batch": 4}},
        **sections,
    }
    return Experiment.of(values)


@given(
    visits=st.floats(0, 1e6),
    rows=st.integers(0, 500),
    rate=st.sampled_from([0.0, 0.5, 7.0, 3600.0]),
    passes=st.floats(0.1, 50),
)
def test_the_moment_at_which_visits_are_covered(visits: float, rows: int, rate: float, passes: float) -> None:
    rules = Rules(rows_per_hour=rate, passes=passes)
    moment = rules.covered(visits, rows)
    if moment == math.inf:
        assert visits > passes * rows * (1 - 1e-6)
    else:
        arrived = rows if not rate else min(rows, math.floor(moment * rate / 3600.0 + 1e-6))
        assert visits <= passes * arrived * (1 + 1e-6) + 1e-6
        assert moment == 0.0 or visits > passes * (arrived - 1) * (1 - 1e-6)  # and not earlier


@settings(max_examples=12, deadline=None)
@given(
    method=st.sampled_from(["fedavg", "fedasync", "echopfl", "ftl", "local"]),
    epochs=st.integers(1, 3),
    passes=st.floats(1.0, 9.0),
    rate=st.sampled_from([0.0, 3600.0, 60.0]),
    duty=st.sampled_from([1.0, 0.5, 0.05]),
    devices=st.sampled_from(["boards", "pc-i7-9700"]),
    dropout=st.sampled_from([0.0, 0.3]),
)
def test_visits_never_exceed_the_passes_over_the_rows_that_have_arrived(
    method: str, epochs: int, passes: float, rate: float, duty: float, devices: str, dropout: float
) -> None:
    pace = {"devices": devices, "rows_per_hour": rate, "passes": passes, "duty": duty}
    session = build(of(method, epochs, fleet=pace, faults={"dropout": dropout}, stop={"rounds": 6}))
    program = session.method.server(
        session.fleet, session.method.start(session.weights, session.config), session.config
    )
    tasks, ended = [], ""
    try:
        for _ in range(30):
            next(program)
            tasks += session.fleet.log.drain()[0]
    except potluck.fleet.FleetEmpty as empty:
        ended = str(empty)
    tasks += session.fleet.log.drain()[0]
    assert not ended or "used up" in ended
    for client, profile in session.fleet.clients.items():
        own = sorted(
            (task for task in tasks if task.client == client and task.outcome != "post"), key=lambda t: t.started
        )
        visits = worked = 0.0
        for task in own:
            assert task.started >= (own[0].started + worked / duty) * (1 - 1e-9) - 1e-6  # the duty cycle
            visits += task.passes * profile.samples
            worked += task.trained - task.started
            arrived = (
                profile.samples if not rate else min(profile.samples, math.floor(task.started * rate / 3600 + 1e-6))
            )
            assert visits <= passes * arrived * (1 + 1e-9) + 1e-6


def test_a_client_that_must_wait_rests_and_comes_back_by_itself() -> None:
    session = build(of(fleet={"devices": "boards", "duty": 1e-7}))
    fleet = session.fleet
    task = session.method.module.Train(session.weights, session.config.recipe)
    fleet.send(task, to="s00")
    answer = fleet.receive()
    assert isinstance(answer, Arrival)
    assert list(fleet.resting) == ["s00"]
    assert "s00" in fleet.resting
    assert "s00" not in fleet.idle
    record = fleet.log.drain()[0][0]
    assert fleet.receive() is None  # it has rested
    assert fleet.now == pytest.approx(record.trained + (1e7 - 1) * (record.trained - record.started))
    assert not fleet.resting
    assert "s00" in fleet.idle


def test_synchronous_methods_wait_for_all_and_all_visit_alike(tmp_path: Path) -> None:
    run = potluck.run(
        small(tmp_path, fleet=PACED, stop={"rounds": 100}, method={"name": "fedavg", "recipe": {"epochs": 2}})
    )
    summary = run.summary
    assert "have used up their passes (fleet.passes = 6)" in summary["ended"]
    assert summary["local_passes"] == pytest.approx(6.0)
    assert summary["rounds"] == 3
    most = max(row["train"] for row in run.table("clients"))
    assert summary["virtual_seconds"] >= most  # a row each second


def test_a_paced_run_is_exact_when_it_is_resumed(tmp_path: Path) -> None:
    for method in ("fedasync", "fedavg"):
        changes = {"fleet": {**PACED, "duty": 0.3}, "method": {"name": method, "recipe": {"epochs": 1}}}
        name = {"out": str(tmp_path), "checkpoint_seconds": 0}
        whole = potluck.run(small(tmp_path, **changes, stop={"rounds": 4}, run={**name, "name": f"{method}-whole"}))
        part = potluck.run(small(tmp_path, **changes, stop={"rounds": 2}, run={**name, "name": f"{method}-part"}))
        assert contents(drive.resume(part.folder, rounds=4)) == contents(whole)


def test_a_task_that_no_rows_will_ever_cover_is_said_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"used up their passes.*its task needs 9 more"):
        potluck.run(small(tmp_path, fleet=PACED, method={"name": "fedavg", "recipe": {"epochs": 9}}))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("fleet", "sentence"),
    [
        ({"duty": 0}, "fleet.duty: must be more than 0, got 0."),
        ({"duty": 1.5}, "fleet.duty: must be at most 1, got 1.5."),
        ({"passes": -1}, "fleet.passes: must be at least 0, got -1."),
        ({"rows_per_hour": 60}, "fleet.rows_per_hour: works with fleet.passes only"),
    ],
)
def test_a_wrong_pace_is_refused_with_one_sentence(fleet: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput) as found:
        of(fleet=fleet)
    assert sentence in str(found.value)
