"""`potluck runs`: settings that differ, filters, order, tags, differences of two runs, and deletion."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest
from helpers.made_runs import flat, made_run
from typer.testing import CliRunner

from potluck.cli import app

from .conftest import Potluck


@pytest.fixture
def shelf(here: Path) -> Path:
    """Three runs: two of fedavg, with two learning rates, and one of ftl."""
    runs = here / "runs"
    runs.mkdir()
    for k, (method, value, lr) in enumerate((("fedavg", 0.5, 0.5), ("fedavg", 0.7, 0.25), ("ftl", 0.6, 0.5))):
        figures = {"mean": value, "worst_tenth": value, "global": None}
        figures = {"accuracy": figures, "virtual_seconds": 10.0, "bytes": {"up": 1, "down": 2}, "energy_joules": 5.0}
        made_run(runs, method, 0, flat(value), name=f"r{k}", settings={"method.recipe": {"lr": lr}}, summary=figures)
    return runs


def listed(potluck: Potluck, *args: str) -> list[str]:
    result = potluck("runs", *args, "--json")
    assert result.exit_code == 0, result.output
    return [row["run"] for row in json.loads(result.stdout)]


def test_runs_are_filtered_and_sorted_and_show_what_differs(potluck: Potluck, shelf: Path) -> None:
    assert listed(potluck) == ["r0", "r1", "r2"]
    assert listed(potluck, "--method", "ftl") == ["r2"]
    assert listed(potluck, "--where", "method.recipe.lr=0.25") == ["r1"]
    assert listed(potluck, "--sort", "accuracy") == ["r1", "r2", "r0"]
    assert listed(potluck, "list", "runs", "--state", "killed", "--data", "nothing") == []
    shown = potluck("runs").stdout
    assert "method.recipe.lr" in shown
    assert "standard deviation over clients" in shown
    assert "None of the 3 runs" in potluck("runs", "--method", "oort").stdout
    assert "--sort: " in potluck("runs", "--sort", "luck").stderr
    assert "--where: must be SETTING=VALUE" in potluck("runs", "--where", "lr").stderr


def test_tags(potluck: Potluck, shelf: Path) -> None:
    assert "r0: paper" in potluck("runs", "tag", "runs/r0", "--add", "paper").stdout
    assert listed(potluck, "--tag", "paper") == ["r0"]
    assert "no tags" in potluck("runs", "tag", "runs/r0", "--remove", "paper").stdout
    assert "must be a word" in potluck("runs", "tag", "runs/r0", "--add", "a/b").stderr
    assert "must have --add or --remove" in potluck("runs", "tag", "runs/r0").stderr


def test_two_runs_side_by_side(potluck: Potluck, shelf: Path) -> None:
    found = json.loads(potluck("runs", "diff", "runs/r0", "runs/r1", "--json").stdout)
    assert found["settings"] == {"method.recipe.lr": [0.5, 0.25]}
    assert found["results"]["accuracy, mean over clients"] == pytest.approx([0.5, 0.7])
    assert "pooled test rows" in potluck("runs", "diff", "runs/r0", "runs/r2").stdout
    path = shelf / "r1" / "summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "clock": "wall"}))
    found = json.loads(potluck("runs", "diff", "runs/r0", "runs/r1", "--json").stdout)["results"]
    assert (found["virtual time"], found["wall time"]) == ([10.0, None], [None, 10.0])
    assert "is not a run" in potluck("runs", "diff", "runs/r0", ".").stderr


def test_deleting_asks_and_takes_only_runs_that_have_ended(potluck: Potluck, shelf: Path) -> None:
    kept = CliRunner().invoke(app, ["runs", "delete", "runs/r0"], input="n\n")
    assert "Nothing was deleted." in kept.output
    assert (shelf / "r0").is_dir()
    refused = potluck("runs", "delete", "runs/r0", "runs", "--yes")  # all are checked first
    assert refused.exit_code == 2
    assert "'runs' is not the folder of a run" in refused.stderr
    assert (shelf / "r0").is_dir()
    (shelf / "link").symlink_to(shelf / "r0")
    assert "is a link" in potluck("runs", "delete", "runs/link", "--yes").stderr
    with (shelf / "r0" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "is running" in potluck("runs", "delete", "runs/r0", "--yes").stderr
    assert "deleted runs/r0" in potluck("runs", "delete", "runs/r0", "--yes").stdout
    assert not (shelf / "r0").exists()
    assert (shelf / "r1").is_dir()
