"""A CFC on a board for methods that train by `learn.fit`: the weights of this machine, for FedAvg and FedBits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.boards import Process, data, emulation, series

from potluck.engines.execute import Job
from potluck.errors import BadInput
from potluck.firmware.fit import FitClient, fit_setup
from potluck.fleet import Local, Params
from potluck.learn import Recipe, fit
from potluck.methods import fedavg, fedbits
from potluck.models import build
from potluck.runs import drive
from potluck.runs.experiment import Experiment

MODEL = build("cfc", (12, 3), 4, {"hidden": 5, "backbone": 8, "head": 6, "interval": 0.5})
RECIPE = Recipe(epochs=2, batch=4, lr=0.1, clip=1.0)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    one = Process(tmp_path / "flash", sanitize=True)
    yield one
    one.kill()


def apart(ours: Params, theirs: Params) -> float:
    return max(float((ours[name] - value).abs().max()) for name, value in theirs.items())


def test_three_rounds_of_fedbits_are_what_this_machine_does(process: Process) -> None:
    """The board trains, this side tells the change: the same bytes but where a rounding is on the edge."""
    config, train, weights = fedbits.Config(bits=6, recipe=RECIPE), data(10), MODEL.init(1)
    board = FitClient(
        process.board(), MODEL, fit_setup(MODEL, fedavg.Config(RECIPE)), fedbits.PROGRAMS, train, data(4, seed=1)
    )
    names = tuple(name for name in weights if not name.startswith("fc."))
    state = fedbits.State(weights, names)
    ours = theirs = fedbits.private(weights, config)
    for number in range(3):
        task = fedbits.task_of(state, config, 0)
        outcome = board.run(Job(number=number, client=0, samples=10, task=task, key=7 + number, mine=ours))
        assert outcome.done is not None, outcome.lost
        board.took(number)
        done = fedbits.train(task, Local(MODEL, train, theirs, torch.tensor(7 + number)))
        ours, theirs = outcome.done.mine, done.mine
        assert apart(ours.weights, theirs.weights) < 1e-5
        assert torch.allclose(outcome.done.update.scales, done.update.scales, rtol=1e-3)
    assert apart(ours.weights, weights) > 1e-2


def test_the_recipe_comes_with_the_task(process: Process) -> None:
    train, weights = data(10), MODEL.init(1)
    board = FitClient(process.board(), MODEL, fit_setup(MODEL, fedavg.Config(RECIPE)), fedavg.PROGRAMS, train)
    for recipe in (RECIPE, Recipe(epochs=1, batch=3, lr=0.02)):
        outcome = board.run(Job(number=0, client=0, samples=10, task=fedavg.Train(weights, recipe), key=5))
        assert outcome.done is not None, outcome.lost
        theirs = fit(MODEL, weights, train, recipe, key=torch.tensor(5))
        assert apart(outcome.done.update.weights, theirs) < 1e-5


def test_int8_weights_learn(process: Process) -> None:
    train, weights = data(10), MODEL.init(1)
    board = FitClient(process.board(), MODEL, fit_setup(MODEL, fedavg.Config(RECIPE), "int8"), fedavg.PROGRAMS, train)
    outcome = board.run(Job(number=0, client=0, samples=10, task=fedavg.Train(weights, RECIPE), key=5))
    assert outcome.done is not None, outcome.lost
    theirs = fit(MODEL, weights, train, RECIPE, key=torch.tensor(5))
    moved, wanted = (
        torch.cat([(tree[name] - weights[name]).flatten() for name in weights])
        for tree in (outcome.done.update.weights, theirs)
    )
    assert float(torch.cosine_similarity(moved, wanted, dim=0)) > 0.5


def test_what_boards_lack_for_a_cfc(process: Process) -> None:
    with pytest.raises(BadInput, match="momentum or a term of its own for a cfc, which boards lack"):
        fit_setup(MODEL, fedavg.Config(Recipe(momentum=0.9)))
    train, weights = data(10), MODEL.init(1)
    setup = fit_setup(MODEL, fedavg.Config(RECIPE), "int8")
    board = FitClient(process.board(), MODEL, setup, {fedavg.Train: _heads}, train)
    outcome = board.run(Job(number=0, client=0, samples=10, task=fedavg.Train(weights, RECIPE), key=5))
    assert outcome.done is None
    assert "layers that rest in a cfc of int8, which boards lack" in outcome.lost


def _heads(task: Any, local: Local) -> Any:
    return fit(local.model, task.weights, local.data, task.recipe, key=local.key, only=frozenset({"fc.weight"}))


@pytest.mark.skipif(emulation() is not None, reason=str(emulation()))
def test_a_run_with_an_emulated_board_is_the_run_without(tmp_path: Path) -> None:
    x, y = series(3 * 16, classes=3)
    np.savez(tmp_path / "waves.npz", x=x, y=y, subject=np.arange(len(y)) % 3)
    plan = Experiment.of(
        {
            "data": {"source": str(tmp_path / "waves.npz")},
            "partition": {"kind": "subject"},
            "fleet": {"devices": "pc"},
            "model": {"name": "cfc", "hidden": 6, "backbone": 8, "head": 6},
            "method": {"name": "fedbits", "recipe.batch": 4},
            "stop": {"rounds": 3},
            "run": {"out": str(tmp_path / "runs"), "evaluate_every": 3, "checkpoint_seconds": 1e9},
        }
    )
    plain, mixed = drive.start(plan), drive.start(plan.with_(fleet={"boards": {"s01": "qemu:nano33"}}))
    assert mixed.summary["ended"] == "3 rounds done"
    sent = [[(row["client"], row["bytes_up"], row["outcome"]) for row in run.table("tasks")] for run in (plain, mixed)]
    assert sent[0] == sent[1]
    assert abs(mixed.summary["accuracy"]["mean"] - plain.summary["accuracy"]["mean"]) < 0.05
