"""`potluck tune` and `potluck compare --tune` as a user meets them, and killed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import SMALL, Potluck

Start = Callable[..., subprocess.Popen[str]]
FEW = ["--clients", "4", "--rounds", "6", "--set", "method.recipe.epochs=1"]
TUNE = ["tune", "fedavg", *SMALL, *FEW, "--trials", "4", "--seeds", "1"]


def test_a_table_a_file_and_the_command_that_uses_it(potluck: Potluck, here: Path) -> None:
    result = potluck(*TUNE)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0].split() == [
        "method", "chosen", "default", "chosen", "passes", "trials", "range",
    ]  # fmt: skip
    assert "compare --experiment runs/tune-made/chosen.toml" in result.stdout
    assert "rung 2 of 2, up to 100 % of the budget" in result.stderr
    found = json.loads((here / "runs" / "tune-made" / "tuning.json").read_text())
    again = potluck(*TUNE, "--resume", "--json", "-q")
    assert json.loads(again.stdout) == {"folder": "runs/tune-made", **found}
    assert again.stderr == ""
    assert (
        potluck("compare", "--experiment", "runs/tune-made/chosen.toml", "--rounds", 1, "--seeds", 1, "-q").exit_code
        == 0
    )


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--trials", "1"], "tune.trials: must be 2 to 10000, got 1."),
        (["--sampler", "grid"], "tune.sampler: 'grid' is not known"),
        (["--space", "method.lr=0.1,0.2"], "--space: 'method.lr' is not known"),
        (["--set", "run.engine=flower-sim"], "run.engine: must be local for tuning, got 'flower-sim'."),
        (["--seed", "1000"], "tune.first_seed: must be other seeds than those of the report"),
    ],
)
def test_what_cannot_be_tuned_is_refused(potluck: Potluck, here: Path, flags: list[str], sentence: str) -> None:
    result = potluck(*TUNE, *flags)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert not (here / "runs").exists()


def test_a_comparison_of_tuned_methods(potluck: Potluck, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("potluck.report.write_figures", lambda runs, folder: [])
    args = ["compare", "fedavg", "local", *SMALL, *FEW, "--seeds", "2", "--tune", "4", "--tune-seeds", "1"]
    args += ["--set", "method.recipe.lr=0.001"]
    result = potluck(*args)
    assert result.exit_code == 0, result.output
    assert "partition.seed is 0 for all seeds" in result.stderr
    folder = here / "runs" / "compare-made"
    written = json.loads((folder / "comparison.json").read_text())
    chosen = written["tuning"]["methods"]["fedavg"]["chosen"]["recipe.lr"]
    assert chosen > 0.001
    for seed in (0, 1):
        toml = (folder / f"fedavg-s{seed}" / "experiment.toml").read_text()
        assert f"lr = {chosen!r}" in toml
        assert 'evaluate_on = "test"' in toml
    page = (folder / "report.html").read_text()
    assert 'id="tuning"' in page
    assert f"recipe.lr {chosen:g}" in page
    assert json.loads(potluck(*args, "--resume", "--json", "-q").stdout)["tuning"] == written["tuning"]
    assert potluck("report", "runs/compare-made", "--out", "again.html").exit_code == 0
    assert 'id="tuning"' in Path("again.html").read_text()


def test_flags_of_tuning_need_tuning(potluck: Potluck) -> None:
    result = potluck("compare", "fedavg", *SMALL, "--space", "method.recipe.lr=0.1,0.2")
    assert result.exit_code == 2
    assert "must be left out without --tune" in result.stderr


def killed(process: Start, potluck: Potluck, here: Path, args: list[str], kills: int, seed: int) -> None:
    """Kill the command at random instants; resumed, it chooses what an undisturbed one chooses."""

    def begin(name: str) -> subprocess.Popen[str]:
        running, begun = process(*args, "--name", name, "--resume", "-q"), _files(here / "runs" / name)
        while running.poll() is None and _files(here / "runs" / name) == begun:
            time.sleep(0.01)  # Python and PyTorch take their time before anything is written
        return running

    undisturbed = begin("whole")
    since = time.monotonic()
    undisturbed.communicate()
    took = time.monotonic() - since
    whole = json.loads(potluck(*args, "--name", "whole", "--resume", "--json", "-q").stdout)
    draw, done, broken = random.Random(seed), 0, here / "runs" / "broken"
    while done < kills:
        running = begin("broken")
        try:
            running.wait(draw.uniform(0.0, took / 2))
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGKILL)
            done += 1
        running.communicate()
        if running.returncode == 0:
            break
    assert done
    result = potluck(*args, "--name", "broken", "--resume", "--json", "-q")
    assert result.exit_code == 0, result.output
    assert {**json.loads(result.stdout), "folder": ""} == {**whole, "folder": ""}
    assert (broken / "chosen.toml").read_text() == (here / "runs" / "whole" / "chosen.toml").read_text()
    assert not list(broken.rglob("*.part"))[kills:]  # at most one torn file per kill, none of them read


def _files(folder: Path) -> int:
    return sum(1 for _ in folder.rglob("*"))


def test_killed_at_random_instants_it_chooses_the_same(process: Start, potluck: Potluck, here: Path) -> None:
    killed(process, potluck, here, TUNE, kills=2, seed=5)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ftl", "echopfl", "clusterfl"])
def test_many_kills(process: Start, potluck: Potluck, here: Path, method: str) -> None:
    args = ["tune", "fedavg", method, *SMALL, *FEW, "--trials", "6", "--seeds", "2", "--jobs", "2"]
    killed(process, potluck, here, args, kills=15, seed=7)
