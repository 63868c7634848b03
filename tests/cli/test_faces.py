"""`potluck watch`, `potluck figures` and `potluck export` as they are called."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import SMALL, Potluck


def test_figures_and_exports_of_a_run(potluck: Potluck, here: Path) -> None:
    potluck("run", *SMALL, "--rounds", 1, "--name", "a")
    done = potluck("figures", "runs/a", "--out", "drawn", "--format", "pdf")
    assert done.exit_code == 0
    made = done.stdout.split()
    assert "drawn/accuracy_by_time.pdf" in made
    assert "drawn/client_by_class-fedavg.pdf" in made
    assert sorted(made) == sorted(str(path.relative_to(here)) for path in (here / "drawn").iterdir())
    done = potluck("export", "runs", "--to", "csv", "--out", "tables")
    assert done.exit_code == 0
    assert done.stdout.split()[0] == "tables/runs.csv"
    assert (here / "tables" / "a" / "tasks.csv").exists()


@pytest.mark.parametrize("command", [("figures",), ("export", "--to", "csv"), ("report",)])
def test_a_folder_without_runs_is_refused(potluck: Potluck, here: Path, command: tuple[str, ...]) -> None:
    done = potluck(command[0], here, *command[1:])
    assert done.exit_code == 2
    assert f"{command[0]}: no run in" in done.stderr
    assert list(here.iterdir()) == []


def test_an_unknown_format_names_the_nearest(potluck: Potluck, here: Path) -> None:
    potluck("run", *SMALL, "--rounds", 1, "--name", "a")
    done = potluck("export", "runs/a", "--to", "parket")
    assert done.exit_code == 2
    assert "parquet" in done.stderr
    assert not (here / "export").exists()


def test_a_folder_that_is_not_there_cannot_be_watched(potluck: Potluck) -> None:
    pytest.importorskip("starlette", reason="the live page needs `pip install potluck[dashboard]`")
    done = potluck("watch", "nowhere")
    assert done.exit_code == 2
    assert "watch: there is no folder 'nowhere'" in done.stderr


def test_watching_from_a_terminal(potluck: Potluck, process: Callable[..., subprocess.Popen[str]]) -> None:
    """The command as a person starts it: it says its address, answers there, and Ctrl-C ends it."""
    pytest.importorskip("starlette", reason="the live page needs `pip install potluck[dashboard]`")
    potluck("run", *SMALL, "--rounds", 2, "--name", "a")
    watching = process("watch", "runs", "--port", "0")
    try:
        assert watching.stdout is not None
        address = watching.stdout.readline().split()[1]
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(f"{address}events", timeout=60) as stream:
            line = next(line for line in stream if line.startswith(b"data: "))
        (head,) = json.loads(line.removeprefix(b"data: "))
        assert (head["name"], head["state"], head["round"]) == ("a", "finished", 2)
        watching.send_signal(signal.SIGINT)
        _, said = watching.communicate(timeout=60)
        assert "Traceback" not in said
    finally:
        watching.kill()
        watching.wait()
