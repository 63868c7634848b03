"""Every experiment file runs: one round, one local epoch, the rest as it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

import potluck
from potluck import methods
from potluck.cli.progress.line import Quiet
from potluck.runs import compare
from potluck.runs.experiment import Experiment, read_toml

FOLDER = Path(__file__).parents[1] / "experiments"
COMPARISONS = [path for path in sorted(FOLDER.rglob("*.toml")) if "compare" in read_toml(path)]
FILES = [  # not lists of devices
    path for path in sorted(FOLDER.rglob("*.toml")) if "method" in read_toml(path) and path not in COMPARISONS
]
# Numbers of passes and trials, which say how long a run takes and not whether it works.
BRIEF = {
    "epochs",
    "public_epochs",
    "trial_rounds",
    "refresh_epochs",
    "pretrain_epochs",
    "compress_epochs",
    "dilate_epochs",
}
# Convolutions on images, once per baseline: most of them only with the slow tests.
QUICK = {"local", "fedavg", "clusterfl"}  # methods of comparisons that take a second
PROMPT = {"mnist_fedconv", "mnist_heterofl", "depth_serveralone", "cross_domain_transfer", "published"}


def marked(path: Path) -> object:
    slow = path.parent.name == "fedconv" and path.stem not in PROMPT
    return pytest.param(path, id=f"{path.parent.name}/{path.stem}", marks=[pytest.mark.slow] if slow else [])


def shortened(path: Path, out: Path) -> Experiment:
    values = read_toml(path)
    useful = methods.load(values["method"]["name"]).useful(values["method"])
    brief = {name: 1 for name in useful if name.rpartition(".")[2] in BRIEF}
    if "pretrain" not in values["method"]:
        brief.pop("pretrain.epochs", None)  # one epoch would be more than none
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


def compared(path: Path) -> list[object]:
    names = compare.of_file(read_toml(path))[1]
    return [
        pytest.param(path, name, id=f"{path.stem}-{name}", marks=[] if name in QUICK else [pytest.mark.slow])
        for name in names
    ]


@pytest.mark.parametrize(("path", "method"), [case for path in COMPARISONS for case in compared(path)])
def test_every_method_of_a_comparison_runs(path: Path, method: str, tmp_path: Path, shared_datasets: Path) -> None:
    values, _, own = compare.of_file(read_toml(path))
    mine = [setting for setting in own if setting.startswith(f"{method}:")]
    brief = [f"{method}:stop.rounds=1", "run.evaluate_clients=5"]
    (run,) = compare.carry_out(compare.plan(values, [method], 1, [*mine, *brief]), tmp_path, Quiet())
    assert run.finished
    assert run.table("evaluations")
