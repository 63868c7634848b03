"""What every client holds and gets right, class by class, as run.db keeps it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import potluck
from potluck.runs import record
from potluck.runs.deal import federation_of
from potluck.runs.results import Run


def run_of(out: Path, **sections: dict[str, object]) -> Run:
    values = {
        "data": {"source": "made"},
        "method": {"name": "ftl"},
        "stop": {"rounds": 2},
        "run": {"out": str(out)},
        **sections,
    }
    return potluck.run(values)


def test_hits_of_the_classes_add_up_to_the_accuracy(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    federation = federation_of(run.experiment)
    held = {row["client"]: json.loads(row["train"]) for row in run.table("held")}
    counts = federation.class_counts(range(len(federation.names)))
    assert held == {name: row.tolist() for name, row in zip(federation.names, counts, strict=True)}
    assert [row["name"] for row in run.table("classes")] == list(federation.dataset.class_names)
    accuracy = {(row["step"], row["client"]): row["accuracy"] for row in run.table("accuracies")}
    found = run.table("by_class")
    assert {(row["step"], row["client"]) for row in found} == set(accuracy)
    tests = federation.class_counts(range(len(federation.names)), "test")
    tested = {name: row.tolist() for name, row in zip(federation.names, tests, strict=True)}
    for row in found:
        rows, right = json.loads(row["test"]), json.loads(row["correct"])
        assert rows == tested[row["client"]]
        assert all(0 <= r <= n for r, n in zip(right, rows, strict=True))
        assert sum(right) / sum(rows) == pytest.approx(accuracy[row["step"], row["client"]])


def test_one_class_by_hand(tmp_path: Path) -> None:
    """A client's own model, asked again: its hits class by class are those that were written down."""
    run = run_of(tmp_path)
    federation = federation_of(run.experiment)
    client = federation.names[0]
    rows = federation.test_rows(0)
    truth = federation.dataset.y[rows]
    said = run.personal(client).predict(federation.dataset.x[rows])
    last = [row for row in run.table("by_class") if row["client"] == client][-1]
    hits = np.bincount(truth[said == truth], minlength=federation.dataset.classes)
    assert json.loads(last["correct"]) == hits.tolist()


def test_of_a_large_picture_the_last_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "MOST_CELLS", 1)
    run = run_of(tmp_path)
    assert {row["step"] for row in run.table("by_class")} == {2}


def test_labels_that_drift_are_counted_under_their_new_names(tmp_path: Path) -> None:
    run = run_of(tmp_path, drift={"at": [1e-9], "clients": 1.0}, stop={"rounds": 1})
    federation = federation_of(run.experiment)
    old = federation.class_counts([0], "test")[0].tolist()
    (row,) = (row for row in run.table("by_class") if row["client"] == federation.names[0] and row["step"] == 1)
    assert json.loads(row["test"]) == [old[-1], *old[:-1]]
