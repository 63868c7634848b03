"""The benchmarks keep up with the code they measure: every file can be imported, and a round of the smallest runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_each_one_can_be_imported(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    __import__(name)


def test_a_round_of_the_smallest_workload_runs() -> None:
    done = subprocess.run(
        [sys.executable, "bench.py", "--only", "W0", "--rounds", "1"], cwd=FOLDER, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "tiny dense 64-64-6" in done.stdout
