"""Runs that pause, and runs that are evaluated on validation rows."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs.test_drive import contents, small

import potluck
from potluck.data import Federation
from potluck.data.split import TEST
from potluck.errors import BadInput
from potluck.runs import deal, drive
from potluck.runs.compare import state_of
from potluck.runs.experiment import Experiment


def experiment(out: Path, name: str, method: str = "fedavg", **changes: Any) -> Experiment:
    epochs = {"recipe.epochs": 2} if method == "clusterfl" else {}
    parts = {"method": {"name": method, **epochs}, "stop": {"rounds": 5}, "partition": {"clients": 4}}
    parts = {section: {**parts.get(section, {}), **changes.get(section, {})} for section in {*parts, *changes}}
    return Experiment.of(small(out, **{**parts, "run": {"out": str(out), "name": name, **changes.get("run", {})}}))


@pytest.mark.parametrize("method", ["fedavg", "ftl", "echopfl", "clusterfl"])
def test_a_paused_run_ends_with_the_bits_of_one_that_never_paused(tmp_path: Path, method: str) -> None:
    whole = drive.start(experiment(tmp_path / "a", "run", method))
    thawed = drive.start(experiment(tmp_path / "b", "run", method), pause=0.2)
    for pause in (0.2, 0.6, None):
        assert thawed.summary["ended"] == "paused"
        assert state_of(thawed) == "paused"
        assert not (thawed.folder / "models").exists()
        done = thawed.summary["rounds"]
        thawed = drive.resume(thawed.folder, pause=pause)
        assert (thawed.summary["rounds"] == done) == (pause == 0.2)  # it had reached that pause before
    assert contents(thawed) == contents(whole)


def test_a_run_pauses_at_an_evaluation(tmp_path: Path) -> None:
    run = drive.start(experiment(tmp_path, "run", run={"evaluate_every": 2}), pause=0.5)
    assert run.summary["rounds"] == 4  # of 5: round 3 is past one half, round 4 is evaluated
    assert [row["step"] for row in run.table("evaluations")] == [0, 2, 4]


def test_a_pause_at_the_end_is_the_end(tmp_path: Path) -> None:
    run = drive.start(experiment(tmp_path, "run"), pause=1.0)
    assert run.summary["ended"] == "5 rounds done"
    assert state_of(run) == "finished"


def test_an_interrupt_does_not_change_when_patience_ends(tmp_path: Path) -> None:
    """Its extra evaluation counts for nothing: a resumed run ends where an uninterrupted one does."""
    settings: dict[str, Any] = {"stop": {"rounds": 12, "patience": 2}, "run": {"evaluate_every": 3}}
    whole = drive.start(experiment(tmp_path / "a", "run", **settings))

    class Impatient(drive.Silent):
        def step(self, progress: Any) -> None:
            if progress.step in (3, 6):
                signal.raise_signal(signal.SIGINT)

    run = drive.start(experiment(tmp_path / "b", "run", **settings), Impatient())
    while run.summary["ended"] == "interrupted":
        run = drive.resume(run.folder, Impatient())
    assert run.summary["rounds"] == whole.summary["rounds"]
    assert run.summary["ended"] == whole.summary["ended"]


VALID: dict[str, Any] = {"partition": {"valid_share": 0.25}, "run": {"evaluate_on": "valid"}}


class Unreadable(RuntimeError):
    """A test row was read."""


def no_test_rows(patched: pytest.MonkeyPatch) -> None:
    """Raise wherever a federation would hand out test rows."""
    many, rows, counts = Federation.materialise_many, Federation.test_rows, Federation.class_counts

    def guarded_many(self: Federation, ids: Any, part: Any, capacity: int) -> Any:
        if part == "test":
            raise Unreadable
        return many(self, ids, part, capacity)

    def guarded_counts(self: Federation, ids: Any, part: Any = "train") -> Any:
        if part == "test":
            raise Unreadable
        return counts(self, ids, part)

    def guarded_rows(self: Federation, i: int) -> Any:
        raise Unreadable(rows)

    patched.setattr(Federation, "materialise_many", guarded_many)
    patched.setattr(Federation, "class_counts", guarded_counts)
    patched.setattr(Federation, "test_rows", guarded_rows)


def test_on_validation_rows_no_test_row_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_test_rows(monkeypatch)
    run = drive.start(experiment(tmp_path, "valid", **VALID))
    assert run.summary["accuracy"]["mean"] > 0
    with pytest.raises(Unreadable):
        drive.start(experiment(tmp_path, "test"))


def test_labels_of_test_rows_do_not_matter_on_validation_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = drive.start(experiment(tmp_path / "a", "run", **VALID))
    before = deal.federate

    def late(dataset: Any, *rest: Any) -> Federation:  # after the split, which spreads test rows over the classes
        federation = before(dataset, *rest)
        labels = federation.dataset.y.copy()
        labels[federation.side == TEST] = (labels[federation.side == TEST] + 1) % federation.dataset.classes
        object.__setattr__(federation.dataset, "y", labels)
        return federation

    monkeypatch.setattr(deal, "federate", late)
    assert contents(drive.start(experiment(tmp_path / "b", "run", **VALID))) == contents(honest)
    other = potluck.run(experiment(tmp_path / "c", "run").model_dump(exclude_none=True))
    monkeypatch.undo()
    assert (
        other.summary["accuracy"]
        != potluck.run(experiment(tmp_path / "d", "run").model_dump(exclude_none=True)).summary["accuracy"]
    )


def test_validation_rows_are_what_is_counted(tmp_path: Path) -> None:
    run = drive.start(experiment(tmp_path, "run", **VALID))
    federation = deal.federation_of(run.experiment)
    found = {row["client"]: row["test"] for row in run.table("clients")}
    assert found == dict(zip(federation.names, np.asarray(federation.valid_sizes).tolist(), strict=True))


def test_without_validation_rows_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"run\.evaluate_on: must be 'test'.*partition\.valid_share"):
        drive.start(experiment(tmp_path, "run", run={"evaluate_on": "valid"}))
    with pytest.raises(BadInput, match=r"run\.evaluate_on: 'validation' is not known"):
        experiment(tmp_path, "run", run={"evaluate_on": "validation"})
