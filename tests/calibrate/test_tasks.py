"""What counts as moved in a run: accepted tasks, and the notes that went along with them."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from potluck.calibrate.tasks import moved

ROWS = [  # client, outcome, sent, arrived, up, down
    ("a", "accepted", 0.0, 5.0, 10, 100),
    ("a", "accepted", 5.1, 9.0, 10, 100),
    ("b", "accepted", 0.0, 8.0, 10, 100),
]


def run_with(folder: Path, *notes: tuple[str, float, float]) -> Any:
    with sqlite3.connect(folder / "run.db") as db:
        db.execute("CREATE TABLE tasks (client, outcome, sent, arrived, bytes_up, bytes_down)")
        rows = [*ROWS, *((client, "post", posted, read, 0, 7) for client, posted, read in notes)]
        db.executemany("INSERT INTO tasks VALUES (?, ?, ?, ?, ?, ?)", rows)
    return cast(Any, SimpleNamespace(folder=folder))


@pytest.mark.parametrize("read", [4.0, 5.1])  # a simulated note is there when it is posted, a real one when it is sent
def test_a_note_counts_with_the_task_that_it_goes_with(tmp_path: Path, read: float) -> None:
    assert moved(run_with(tmp_path, ("a", 4.0, read))) == 330 + 7


@pytest.mark.parametrize("read", [7.0, 8.1])
def test_a_note_for_a_task_under_way_at_the_end_does_not_count(tmp_path: Path, read: float) -> None:
    """The client is at work on an accepted task when it is posted, but the task that it goes with never came back."""
    assert moved(run_with(tmp_path, ("b", 7.0, read))) == 330
