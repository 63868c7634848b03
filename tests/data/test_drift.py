"""Data that changes while a run goes on: who sees what when, in training and in evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import potluck
from potluck.data.drift import Drift, DriftSpec
from potluck.engines.execute import Executor
from potluck.errors import BadInput

NAMES = [f"c{i}" for i in range(10)]


def test_labels_move_on_by_one_at_each_moment_for_those_concerned() -> None:
    drift = Drift(DriftSpec((10.0, 20.0), "labels", ("c3",)), NAMES, 3, 0)
    assert drift.view(3, 9.99) == (3, None)
    assert drift.view(3, 10.0) == (3, (1, 2, 0))
    assert drift.view(3, 25.0) == (3, (2, 0, 1))
    assert drift.view(4, 25.0) == (4, None)


def test_after_as_many_moments_as_classes_labels_are_what_they_were() -> None:
    drift = Drift(DriftSpec((1.0, 2.0), "labels", ("c0",)), NAMES, 2, 0)
    assert drift.view(0, 3.0) == (0, None)


def test_rows_go_round_among_those_concerned() -> None:
    drift = Drift(DriftSpec((5.0,), "rows", ("c1", "c4", "c7")), NAMES, 3, 0)
    assert [drift.view(i, 6.0)[0] for i in (1, 4, 7)] == [4, 7, 1]
    assert drift.view(2, 6.0) == (2, None)


def test_a_share_is_chosen_by_the_seed() -> None:
    one, same, other = (Drift(DriftSpec((5.0,), "labels", 0.3), NAMES, 3, s).concerned for s in (0, 0, 1))
    assert len(one) == 3
    assert one == same
    assert one != other


@pytest.mark.parametrize(
    ("field", "values"),
    [("at", {"at": [5.0, 2.0]}), ("kind", {"at": [1.0], "kind": "noise"}), ("clients", {"at": [1.0], "clients": 0.0}),
     ("clients", {"at": [1.0], "clients": ["nobody"]})],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(field: str, values: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"drift.{field}"):
        potluck.run({"data": {"source": "made"}, "drift": values, "run": {"out": str(tmp_path)}})
    assert not list(tmp_path.iterdir())


def run(tmp_path: Path, **drift: Any) -> Any:
    return potluck.run(
        {
            "data": {"source": "made"},
            "partition": {"kind": "iid", "clients": 4},
            "fleet": {"devices": "raspberry-pi-4"},
            "method": {"name": "local", "recipe.epochs": 1, "recipe.lr": 0.1},
            "stop": {"rounds": 12},
            "drift": drift,
            "run": {"out": str(tmp_path)},
        }
    )


def test_evaluation_sees_the_drift_at_its_moment_and_training_recovers_from_it(tmp_path: Path) -> None:
    calm = run(tmp_path)
    steps = {row["step"]: row["virtual"] for row in calm.table("steps")}
    middle = (steps[6] + steps[7]) / 2
    shaken = run(tmp_path, at=[middle], clients=["c0001"])
    curve = {
        (row["step"], row["client"]): row["accuracy"] for row in shaken.table("accuracies")
    }  # fmt: skip
    before = {(row["step"], row["client"]): row["accuracy"] for row in calm.table("accuracies")}
    assert all(curve[k, c] == before[k, c] for k in range(1, 7) for c in calm.clients)
    assert curve[7, "c0001"] < before[7, "c0001"] - 0.3
    assert curve[12, "c0001"] > curve[7, "c0001"] + 0.3  # it learns the new labels
    assert all(curve[12, c] == before[12, c] for c in calm.clients if c != "c0001")


def test_a_leg_trains_on_the_data_of_the_moment_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lazily computed or not: every job's labels are those of its leg's start."""
    jobs: list[Any] = []
    original = Executor.blocks

    def spy(self: Executor, wave: Any) -> Any:
        jobs.extend(wave)
        return original(self, wave)

    monkeypatch.setattr(Executor, "blocks", spy)
    result = potluck.run(
        {
            "data": {"source": "made"},
            "partition": {"kind": "iid", "clients": 4},
            "fleet": {"devices": {"raspberry-pi-4": 1, "jetson-orin-nano": 1}},
            "method": {"name": "echopfl", "broadcast.predictor": "ewma"},
            "stop": {"rounds": 6},
            "drift": {"at": [0.02], "clients": 1.0},
            "run": {"out": str(tmp_path)},
        }
    )
    tasks = {row["number"]: row for row in result.table("tasks") if row["number"] >= 0}
    seen: dict[int, int] = {}
    checked = 0
    for job in jobs:
        leg = seen[job.number] = seen.get(job.number, -1) + 1
        task = tasks.get(job.number)
        if task is not None:
            start = task["started"] + (task["trained"] - task["started"]) * leg / 4
            assert (job.labels is not None) == (start >= 0.02)
            checked += 1
    assert checked > 20
    assert {job.labels is None for job in jobs} == {True, False}
