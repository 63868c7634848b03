from __future__ import annotations

import io
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from potluck.cli.progress.board import Board
from potluck.cli.progress.line import Live, Plain, figures
from potluck.runs.parallel import Facts
from potluck.runs.watcher import Progress


def progress(round: int, rounds: int | None = 10, **other: Any) -> Progress:
    given = {"step": round, "virtual": 2.0, "wall": 1.0, "accuracy": 0.5, "at_work": 0, "clients": 8, "refused": 0}
    return Progress(round=round, rounds=rounds, **(given | {"lost": 0} | other))


def begin(watcher: Any, name: str = "run-a") -> None:
    experiment = SimpleNamespace(stop=SimpleNamespace(rounds=10))
    fleet = SimpleNamespace(clients=range(8))
    parts = SimpleNamespace(
        fleet=fleet, method=SimpleNamespace(name="fedavg"), model=SimpleNamespace(name="mlp"), experiment=experiment
    )
    watcher.start(SimpleNamespace(folder=Path("runs") / name, name=name), parts)


def plain() -> tuple[Plain, io.StringIO, list[float]]:
    out, now = io.StringIO(), [0.0]
    return Plain(Console(file=out, width=200), clock=lambda: now[0], every=5.0), out, now


def test_a_line_every_few_seconds_not_every_round() -> None:
    watcher, out, now = plain()
    begin(watcher)
    for round in range(1, 11):
        now[0] += 2.0
        watcher.step(progress(round))
    lines = out.getvalue().replace("\N{NO-BREAK SPACE}", " ").splitlines()
    assert lines[0] == "run-a: fedavg, 8 clients, mlp, in runs/run-a"
    assert lines[1] == "run-a: round 3 of 10, accuracy 0.500, 2 s virtual, 14 s left"
    assert [line.split()[2] for line in lines[1:]] == ["3", "6", "9"]


def test_time_left_counts_all_runs_and_only_this_process() -> None:
    watcher, out, now = plain()
    watcher.next_run("run-a", 1, 4).close()  # was done before
    watcher.next_run("run-b", 2, 4)
    begin(watcher, "run-b")
    watcher.step(progress(5))  # taken up in the middle: 1.5 of 4 runs are done
    now[0] = 10.0
    watcher.step(progress(10))  # half a run in 10 s, two runs to go
    assert "40\N{NO-BREAK SPACE}s left" in out.getvalue()


def test_a_run_that_ends_by_virtual_time_tells_what_is_left_by_that() -> None:
    """Round 1 of 1,000 and half of its 4 virtual seconds after 10 s: 10 s are left, not hours."""
    watcher, out, now = plain()
    begin(watcher)
    watcher.step(progress(0, rounds=1000, virtual=0.0, seconds=4.0))
    now[0] = 10.0
    watcher.step(progress(1, rounds=1000, seconds=4.0))
    told = out.getvalue().replace("\N{NO-BREAK SPACE}", " ").splitlines()[-1]
    assert told == "run-a: round 1 of 1000, accuracy 0.500, 2 s of 4 s virtual, 10 s left"
    assert progress(1, rounds=None, seconds=4.0).share == 0.5
    assert progress(900, rounds=1000, seconds=4.0).share == 0.9  # whichever comes first
    assert progress(1, rounds=None).share is None
    assert progress(1, rounds=None, used=0.25).share == 0.25  # a budget, as comparisons have it


def test_a_note_is_told_once_and_the_unfit_together() -> None:
    watcher, out, _ = plain()
    begin(watcher)
    for _ in range(2):
        watcher.say("5 of 9 subjects take part.")
    for client in ("a", "b", "c", "d"):
        watcher.say(f"{client}: does not fit: nano: training needs 2 MB, the device has 1 MB for it.")
    watcher.step(progress(1))
    watcher.say("a: does not fit: nano: training needs 3 MB, the device has 1 MB for it.")
    watcher.step(progress(1))
    assert out.getvalue().splitlines()[1:] == [
        "note: 5 of 9 subjects take part.",
        "note: a, b, c and 1 more cannot train: nano: training needs 2 MB, the device has 1 MB for it.",
    ]


def test_figures_name_only_what_is_there() -> None:
    told = figures(progress(3, rounds=None, accuracy=None, at_work=2, refused=1, lost=4, unfit=2), None)
    assert told.replace("\N{NO-BREAK SPACE}", " ") == (
        "round 3, 2 s virtual, 2 of 8 at work, 1 refused, 4 lost, 2 too small to train"
    )


def test_a_terminal_gets_a_live_line() -> None:
    out = io.StringIO()
    watcher = Live(Console(file=out, force_terminal=True, width=120), clock=lambda: 0.0)
    watcher.next_run("a", 1, 2)
    begin(watcher, "[odd] name")
    watcher.say("a note")
    watcher.step(progress(4))
    watcher.close()
    assert "1/2 [odd] name" in out.getvalue()
    assert "note: a note" in out.getvalue()
    assert "round 4 of 10" in out.getvalue()


def test_a_terminal_gets_a_line_per_method() -> None:
    """Two runs side by side: the one at work is shown, accuracies are means over the runs so far."""
    out, now = io.StringIO(), [0.0]
    console = Console(file=out, force_terminal=True, width=80)  # as terminals are
    board = Board(console, clock=lambda: now[0])
    board.expect([("local-s0", "local"), ("fedavg-s0", "fedavg"), ("local-s1", "local"), ("fedavg-s1", "fedavg")])
    turns = [board.next_run(name, number, 4) for number, name in enumerate(board.methods, start=1)]
    for turn in turns[:3]:
        turn.start_from(Facts(Path("runs") / turn.name, board.methods[turn.name], "mlp", 8))
    turns[0].step(progress(10, accuracy=0.6, answered=8))
    turns[0].close()
    turns[1].step(progress(5, at_work=6, lost=1, unfit=1))
    now[0] = 8.0
    turns[2].step(progress(5, accuracy=0.8, answered=6))  # 1, 0.5 and 0.5 of 4 runs are done, all but 1 in 8 s
    turns[1].show_activity("tuning")
    with console.capture() as drawn:
        console.print(board.drawn())
    board.close()
    text = drawn.get().replace("\N{NO-BREAK SPACE}", " ")
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line).split() for line in text.splitlines()]
    assert lines[2] == ["local", "1/2", "5/10", "0.700", "6", "2", "0", "0", "2", "s", "2", "s"]
    assert lines[3] == ["fedavg", "0/2", "5/10", "0.500", "6", "1", "1", "1", "2", "s", "2", "s"]
    assert " ".join(lines[4]) == "1 of 4 runs done, 8 s on this machine, about 16 s left; fedavg-s0: tuning"
