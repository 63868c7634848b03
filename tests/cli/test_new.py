"""`potluck new`: what it writes works as it is; and the shell's proposals."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from potluck.cli import complete
from potluck.runs.experiment import Experiment


def test_an_experiment(here: Path, potluck: Any) -> None:
    done = potluck("new", "experiment")
    assert done.exit_code == 0, done.output
    assert done.stdout.strip() == "experiment.toml; next: potluck run experiment.toml"
    assert Experiment.read(here / "experiment.toml").method["name"] == "fedavg"
    ran = potluck("run", "experiment.toml", "--rounds", "1", "--model", "softmax", "--fleet", "pc", "--quiet")
    assert ran.exit_code == 0, ran.output


def test_a_method(here: Path, potluck: Any) -> None:
    assert potluck("new", "method", "mine.py").exit_code == 0
    ran = potluck("run", "--method", "mine.py", "--data", "made", "--model", "softmax", "--rounds", "1", "--quiet")
    assert ran.exit_code == 0, ran.output


def test_the_data_of_a_client(here: Path, potluck: Any) -> None:
    assert potluck("new", "client", "rows.py").exit_code == 0
    done = subprocess.run([sys.executable, "rows.py"], capture_output=True, text=True, cwd=here)
    assert done.returncode == 0, done.stderr
    card = potluck("data", "rows.npz", "--json")
    assert card.exit_code == 0, card.output
    assert (here / "rows.npz").exists()


def test_a_notebook(here: Path, potluck: Any) -> None:
    assert potluck("new", "notebook").exit_code == 0
    assert json.loads((here / "my_notebook.ipynb").read_text())["nbformat"] == 4


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["exeriment"], "did you mean 'experiment'"),
        (["method", "there.py"], "'there.py' exists; choose another name"),
        (["method", "mine.toml"], "must end in .py, got 'mine.toml'"),
        (["method", "no/such/mine.py"], "cannot be written"),
    ],
)
def test_mistakes(here: Path, potluck: Any, args: list[str], sentence: str) -> None:
    (here / "there.py").write_text("kept")
    done = potluck("new", *args)
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert (here / "there.py").read_text() == "kept"


def test_the_shell_is_proposed_names_and_files(here: Path) -> None:
    (here / "mine.npz").touch()
    (here / "notes.txt").touch()
    (here / "made_by_me").mkdir()
    assert complete.methods("fedav") == ["fedavg", "fedavgm"]
    assert {"made", "made_by_me", "mine.npz"} <= set(complete.datasets("m"))
    assert complete.datasets("mi") == ["mine.npz"]
    assert not [name for name in complete.datasets("n") if name == "notes.txt"]
    assert "raspberry-pi-4" in complete.fleets("rasp")
    assert complete.models("sof") == ["softmax"]


def test_completion_can_be_installed(potluck: Any) -> None:
    done = potluck("--help")
    assert "--install-completion" in done.stdout
