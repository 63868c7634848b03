"""Every experiment file runs: one round, one local epoch, the rest as it is written."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

import potluck
from potluck import methods
from potluck.runs.experiment import Experiment, read_toml

FOLDER = Path(__file__).parents[1] / "experiments"
FILES = [path for path in sorted(FOLDER.rglob("*.toml")) if "method" in read_toml(path)]  # not lists of devices
# Numbers of passes and trials, which say how long a run takes and not whether it works.
BRIEF = ("epochs", "e_p", "e_c", "e_t", "e_a", "public_epochs", "trial_rounds", "refresh_epochs", "pretrain_epochs")
# Convolutions on images, once per baseline: most of them only with the slow tests.
PROMPT = {"mnist_fedconv", "mnist_heterofl", "depth_serveralone", "cross_domain_transfer", "published"}


def marked(path: Path) -> object:
    slow = path.parent.name == "fedconv" and path.stem not in PROMPT
    return pytest.param(path, id=f"{path.parent.name}/{path.stem}", marks=[pytest.mark.slow] if slow else [])


def shortened(path: Path, out: Path) -> Experiment:
    values = read_toml(path)
    settings = {field.name for field in fields(methods.load(values["method"]["name"]).config)}
    brief = {name: 1 for name in BRIEF if name in settings}
    # `rounds` also counts the arrivals of asynchronous methods.
    return Experiment.read(path).with_(
        method=brief, stop={"rounds": 1}, run={"out": str(out), "name": "short", "evaluate_clients": 5}
    )


def test_there_are_some() -> None:
    assert {path.parent.name for path in FILES} >= {"clusterfl", "echopfl", "fedcfc", "centaur", "fedconv"}


@pytest.mark.parametrize("path", [marked(path) for path in FILES])
def test_it_runs(path: Path, tmp_path: Path, shared_datasets: Path) -> None:
    run = potluck.run(shortened(path, tmp_path))
    assert run.finished
    assert run.table("evaluations")
