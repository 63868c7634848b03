"""Budgets: what a run uses, when it ends, and how much of it is over."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

import potluck
from potluck.errors import BadInput
from potluck.methods import load
from potluck.runs import checkpoint, drive
from potluck.runs.experiment import Experiment
from potluck.runs.limits import Used, ended, progress
from potluck.runs.record import Recorder
from tests.runs.test_drive import contents, small

FEDAVG = {"name": "fedavg", "recipe": {"epochs": 2}}


def of(budget: dict[str, Any], **sections: Any) -> Experiment:
    return Experiment.of({"method": {"name": "fedavg"}, "budget": budget, **sections})


def test_a_budget_replaces_the_default_number_of_rounds_but_not_one_that_is_set() -> None:
    assert Experiment.of({"method": {"name": "fedavg"}}).stop.rounds == 20
    assert of({"joules": 3}).stop.rounds is None
    assert of({"joules": 3}, stop={"rounds": 7}).stop.rounds == 7
    again = Experiment.of(potluck.runs.experiment.tomllib.loads(of({"joules": 3}).toml()))
    assert again.stop.rounds is None
    assert again.budget.limits == {"joules": 3}


@pytest.mark.parametrize(
    ("budget", "sentence"),
    [
        ({"joules": 0}, "budget.joules: must be more than 0, got 0."),
        ({"local_passes": -1.5}, "budget.local_passes: must be more than 0, got -1.5."),
        ({"rounds": "many"}, "budget.rounds: must be a whole number, got 'many'."),
        ({"passes": 1}, "budget.passes"),
    ],
)
def test_a_wrong_budget_is_refused_with_one_sentence(budget: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput) as found:
        of(budget)
    assert sentence in str(found.value)


def test_a_run_ends_at_the_first_limit_and_says_which() -> None:
    one = of({"joules": 10.0, "bytes": 4000, "local_passes": 2.0, "virtual_seconds": 9.0, "rounds": 50})
    assert ended(one, Used(8.9, 9.0, 3999, 1.9, 49)) is None
    assert ended(one, Used(bytes=4000)) == "the budget of 4,000 bytes is used up"
    assert ended(one, Used(local_passes=0.1 * 20)) == "the budget of 2 local passes is used up"
    assert ended(one, Used(joules=10.5)) == "the budget of 10 joules is used up"
    assert ended(one, Used(virtual_seconds=9)) == "the budget of 9 virtual seconds is used up"
    assert ended(one, Used(rounds=50)) == "the budget of 50 rounds is used up"


def test_progress_is_the_largest_share_of_a_limit() -> None:
    one = of({"joules": 10.0, "local_passes": 2.0}, stop={"rounds": 100, "virtual_seconds": 1000})
    assert progress(one, Used()) == 0.0
    assert progress(one, Used(joules=2.5, local_passes=0.2, rounds=3)) == 0.25
    assert progress(one, Used(rounds=30, local_passes=0.2)) == 0.3
    assert progress(one, Used(local_passes=9.0)) == 1.0
    assert progress(of({}, stop={"rounds": 0, "accuracy": 0.5}), Used(rounds=5)) == 0.0


@pytest.mark.parametrize("kind", ["virtual_seconds", "joules", "bytes", "local_passes", "rounds"])
def test_each_kind_of_budget_ends_a_run_at_its_first_step_past_the_limit(kind: str, tmp_path: Path) -> None:
    whole = potluck.run(small(tmp_path, method=FEDAVG))
    column = {"virtual_seconds": "virtual", "local_passes": "passes", "rounds": "round"}.get(kind, kind)
    used = [row["bytes_up"] + row["bytes_down"] if kind == "bytes" else row[column] for row in whole.table("steps")]
    limit = int(used[2]) if kind in ("bytes", "rounds") else used[2]
    values = small(tmp_path, method=FEDAVG, budget={kind: limit})
    del values["stop"]
    run = potluck.run(values)
    assert [row["step"] for row in run.table("steps")] == [0, 1, 2]
    assert "is used up" in run.summary["ended"]
    assert run.summary["local_passes"] == pytest.approx(4.0)


def test_a_budget_is_exact_when_a_run_is_killed_and_resumed(tmp_path: Path) -> None:
    values = small(tmp_path, method={"name": "ftl", "recipe": {"epochs": 2}}, budget={"local_passes": 10.0})
    del values["stop"]
    whole = potluck.run(values)
    assert whole.summary["rounds"] == 5
    part = potluck.run({**values, "stop": {"rounds": 2}, "run": {**values["run"], "name": "part"}})
    assert part.summary["rounds"] == 2
    # FTL turns by its share of the budget; the shorter run planned by its two rounds, so only one round is alike.
    assert contents(part)["tables"]["steps"][1] == contents(whole)["tables"]["steps"][1]
    killed = potluck.run({**values, "run": {**values["run"], "name": "killed", "checkpoint_seconds": 0}})
    (killed.folder / "summary.json").unlink()
    assert contents(drive.resume(killed.folder))["tables"] == contents(whole)["tables"]


def test_a_method_that_never_asks_a_client_ends_too(tmp_path: Path) -> None:
    values = small(tmp_path, method={"name": "serveralone"}, server={"share": 0.3}, budget={"local_passes": 5.0})
    del values["stop"]
    run = potluck.run(values)
    assert run.summary["ended"] == "nothing that the budget counts grew in 20 rounds"
    assert run.summary["rounds"] == 20


def test_a_database_of_an_older_release_gets_the_new_columns(tmp_path: Path) -> None:
    run = potluck.run(small(tmp_path))
    path = run.folder / "run.db"
    with sqlite3.connect(path) as db:
        db.execute("ALTER TABLE steps DROP COLUMN passes")
        db.execute("ALTER TABLE tasks DROP COLUMN passes")
    recorder = Recorder(path)
    recorder.rewind(2)
    assert recorder.totals["passes"] == 0.0
    assert recorder.totals["macs"] > 0
    recorder.close()
    place, classes = run.folder / "checkpoint", load("fedavg").classes
    saved = checkpoint.load(place, classes)
    assert saved is not None
    del saved[checkpoint.MANIFEST]  # checkpoints had none then
    checkpoint.save(place, saved)
    assert drive.resume(run.folder, rounds=5).summary["rounds"] == 5
