"""When the rows of a run are in its database for others to read."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from potluck.engines.log import Event
from potluck.runs import transactions
from potluck.runs.record import EvaluationRecord, Recorder, StepRecord, read

FIGURES = dict.fromkeys(("mean", "std", "worst", "best", "worst_tenth", "loss", "global"), 0.5)


def step(number: int) -> StepRecord:
    return StepRecord(number, number, 1.0, 1.0, 0, [], [Event(1.0, "lost", "c1")])


def seen(path: Path) -> list[int]:
    """The steps that another reader finds, each with its event."""
    events = [row["step"] for row in read(path, "SELECT step FROM events ORDER BY step")]
    assert events == [row["step"] for row in read(path, "SELECT step FROM steps ORDER BY step")]
    return events


def test_quick_steps_are_committed_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.db"
    recorder = Recorder(path)
    monkeypatch.setattr(transactions, "HELD", 1e6)
    recorder.step(step(1))
    recorder.step(step(2))
    assert seen(path) == []
    assert recorder.rows("SELECT count(*) FROM steps") == [(2,)]  # who writes sees them
    recorder.step(step(3), EvaluationRecord(FIGURES, [("c1", 0.5, 0.5, 3)]))
    recorder.evaluation(4, EvaluationRecord(FIGURES, []))  # of a step that is written: the run is at its end
    assert seen(path) == [1, 2, 3]
    recorder.step(step(4))
    recorder.seal(4)
    assert seen(path) == [1, 2, 3, 4]
    recorder.step(step(5))
    recorder.rewind(3)
    assert seen(path) == [1, 2, 3]
    recorder.step(step(4))
    recorder.close()
    assert seen(path) == [1, 2, 3, 4]


def test_half_a_step_is_never_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.db"
    recorder = Recorder(path)
    recorder.step(step(1))
    recorder.commit()
    monkeypatch.setattr(transactions, "HELD", 1e6)
    recorder.step(step(2))
    with pytest.raises(AttributeError):
        recorder.step(replace(step(3), events=[None]))  # type: ignore[list-item]
    recorder.close()
    assert seen(path) == [1, 2]


def test_a_slow_step_is_committed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.db"
    recorder = Recorder(path)
    monkeypatch.setattr(transactions, "HELD", 0.0)
    recorder.step(step(1))
    assert seen(path) == [1]
    recorder.close()


def test_held_steps_are_committed_though_no_step_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.db"
    recorder = Recorder(path)
    monkeypatch.setattr(transactions, "HELD", 0.5)
    recorder.step(step(1))
    recorder.step(step(2))
    for _ in range(100):
        if seen(path) == [1, 2]:
            break
        time.sleep(0.05)
    assert seen(path) == [1, 2]
    recorder.step(step(3))
    recorder.close()
    assert seen(path) == [1, 2, 3]
