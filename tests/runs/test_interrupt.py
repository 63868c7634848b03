"""Ctrl-C: said at once, and never lost in the last round of a run."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from potluck.runs import compare, drive
from potluck.runs.experiment import Experiment
from potluck.runs.interrupt import STOPPING
from potluck.runs.watcher import Progress, Silent

SMALL = {"data": {"source": "made"}, "model": {"name": "softmax"}, "fleet": {"devices": "pc"}}


class Presses(Silent):
    """Presses Ctrl-C after a step, and notes what is said."""

    def __init__(self, at: int) -> None:
        self.at, self.said = at, list[str]()

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    def step(self, progress: Progress) -> None:
        if progress.step == self.at:
            os.kill(os.getpid(), signal.SIGINT)
            assert self.said[-1] == STOPPING  # at once, not at the end of the round


def test_a_stop_is_announced_at_once(tmp_path: Path) -> None:
    experiment = Experiment.of({**SMALL, "method": {"name": "fedavg"}, "stop": {"rounds": 5}})
    run = drive.start(experiment.with_(run={"out": str(tmp_path)}), Presses(1))
    assert run.summary["ended"] == "interrupted"
    assert run.summary["rounds"] == 1


class Watchers:
    """The runs of a comparison; Ctrl-C comes in the last round of the first one."""

    def expect(self, runs: object) -> None: ...

    def next_run(self, name: str, number: int, of: int) -> Silent:
        watcher = Presses(2 if number == 1 else 0)
        watcher.close = lambda: None  # type: ignore[attr-defined]
        watcher.start_from = lambda facts: None  # type: ignore[attr-defined]
        return watcher


def test_ctrl_c_in_the_last_round_of_a_run_ends_the_comparison(tmp_path: Path) -> None:
    planned = compare.plan({**SMALL, "stop": {"rounds": 2}}, ["fedavg", "local"], 1, [])
    with pytest.raises(compare.Interrupted):
        compare.carry_out(planned, tmp_path / "c", Watchers())  # type: ignore[arg-type]
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["fedavg-s0"]
