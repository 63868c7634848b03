"""A client that is online and says nothing: it is lost after a while, holds nobody, and may return."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

from helpers.short_runs import experiment_of, tiny

from potluck.engines.flower.protocol import Envelope
from potluck.engines.flower.server.deadlines import Deadlines
from potluck.runs import drive
from potluck.runs.results import Run
from potluck.runs.watcher import Silent
from potluck.testing.loopback import Loopback, Meddle, machines, owners, staged


def clock() -> Callable[[], float]:
    """Half a second goes by with each look at the clock."""
    looks = count()
    return lambda: next(looks) * 0.5


def run_with(folder: Path, meddle: Meddle, rounds: int) -> Run:
    wire = {"task_seconds": 20.0, "look_seconds": 20.0}
    experiment = experiment_of("fedavg", tiny(folder / "tiny.npz", clients=3), rounds=rounds, wire=wire)
    homes = machines(experiment, folder / "machines", **owners(experiment))
    (folder / "run").mkdir()
    session = staged(experiment, Loopback(homes, meddle), patience=600.0, clock=clock())
    return drive.carry_out(folder / "run", session, Silent())


def test_a_mute_client_is_lost_and_comes_back(tmp_path: Path) -> None:
    """It swallows its first task, and answers everything after that."""
    swallowed: list[str] = []

    def meddle(node: int, ask: Envelope, answer: Envelope) -> list[Envelope | str]:
        if node == 3 and ask.kind == "task" and not swallowed:
            swallowed.append(ask.head["ticket"])
            return []
        return [answer]

    run = run_with(tmp_path, meddle, rounds=14)
    mine = [(task["outcome"], task["reason"]) for task in run.table("tasks") if task["client"] == "s02"]
    assert mine[0] == ("lost", "did not answer within 20 seconds")
    assert {outcome for outcome, _ in mine[1:]} == {"accepted"}
    assert len(mine) > 1
    assert [event["client"] for event in run.table("events") if event["kind"] == "back"] == ["s02"]
    assert run.summary["rounds"] == 14


def test_who_never_scores_is_left_out(tmp_path: Path) -> None:
    silent = run_with(tmp_path, lambda node, ask, answer: [] if node == 3 and ask.kind == "evaluate" else [answer], 3)
    assert silent.summary["rounds"] == 3
    assert sorted(silent.summary["per_client"]) == ["s00", "s01"]
    assert any("no evaluation within" in event["detail"] for event in silent.table("events"))


def test_a_deadline_follows_what_answers_took() -> None:
    found = Deadlines()
    assert found.seconds("task", "a") == 3600.0  # nothing is known yet
    for seconds in (10.0, 20.0, 30.0):
        found.note("task", "a", seconds)
    assert found.seconds("task", "b") == 200.0  # ten times the median
    found.note("task", "b", 700.0)  # it came too late, and is waited for the next time
    assert found.seconds("task", "b") == 2100.0
    assert found.seconds("evaluate", "a") == 600.0
    assert Deadlines({"task": 5.0}).seconds("task", "a") == 5.0
