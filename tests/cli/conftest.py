"""A folder of one's own, and the command line inside it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file
from typer.testing import CliRunner, Result

from potluck.cli import app

SMALL = ["--data", "made", "--model", "softmax", "--fleet", "pc"]  # a run of a few hundredths of a second
START = [sys.executable, "-m", "potluck.cli"]

Potluck = Callable[..., Result]


def weights(folder: Path) -> dict[str, bytes]:
    """The common model of a run, bit by bit."""
    loaded = load_file(folder / "models" / "global.safetensors")
    return {name: value.numpy().tobytes() for name, value in loaded.items()}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("POTLUCK_DEBUG", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)  # test runners set it; what is tested is a pipe of unknown width
    return tmp_path


@pytest.fixture
def potluck() -> Potluck:
    """The command line in this process."""
    return lambda *args: CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.fixture
def process(here: Path) -> Callable[..., subprocess.Popen[str]]:
    """The command line in a process of its own, as a script would start it."""
    source = str(Path(__file__).parents[2] / "src")
    env = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}

    def start(*args: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen([*START, *args], cwd=here, env=env, stdout=pipe, stderr=pipe, text=True)

    return start
