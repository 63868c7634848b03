"""A CFC on a board for methods that train by `learn.fit`: the weights of this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.boards import Process, apart, data, emulation, series

from potluck import methods
from potluck.engines.chunks import Job
from potluck.engines.serial.board import Board
from potluck.errors import BadInput
from potluck.firmware.boards import BOARDS, KB
from potluck.firmware.emulator import Emulator
from potluck.firmware.fit import FitClient, fit_setup
from potluck.firmware.image import build as firmware_build
from potluck.firmware.layers import LOSS_ALONE, PULL, VELOCITY
from potluck.firmware.shape import checked_options, memory, memory_needed, setup_of
from potluck.fleet import Local, Params
from potluck.learn import Recipe, fit
from potluck.methods import ditto, fedavg, fedbits, fedcfc, fedprox, ftl, scaffold
from potluck.methods.parts.fedcfc import precision
from potluck.models import build
from potluck.runs import drive
from potluck.runs.experiment import Experiment

MODEL = build("cfc", (12, 3), 4, {"hidden": 5, "backbone": 8, "head": 6, "interval": 0.5})
RECIPE = Recipe(epochs=2, batch=4, lr=0.1, clip=1.0)


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


RECIPES = {
    "plain": Recipe(epochs=2, batch=4, lr=0.1),
    "momentum": Recipe(epochs=2, batch=3, lr=0.05, momentum=0.9),
    "clipped": Recipe(epochs=1, batch=32, lr=0.2, clip=0.05, momentum=0.5),
}


@pytest.mark.parametrize("keep", ["segments", "fours"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe(process: Process, recipe: str, keep: str) -> None:
    """Series of unequal intervals; FedCFC's terms have no part in it, and no memory."""
    config, train, weights = fedavg.Config(RECIPES[recipe]), data(10, irregular=True), MODEL.init(2)
    setup = fit_setup(MODEL, config, timed=True, keep=keep)
    board = FitClient(process.board(), MODEL, setup, fedavg.PROGRAMS, train, data(4, seed=1, irregular=True))
    outcome = board.run(Job(number=3, client=0, samples=10, task=fedavg.Train(weights, config.recipe), key=77))
    assert outcome.done is not None, outcome.lost
    theirs = fit(MODEL, weights, train, config.recipe, key=torch.tensor(77))
    assert apart(theirs, weights) > 1e-3
    assert apart(outcome.done.update.weights, theirs) < 1e-5


TASKS: dict[str, Callable[[Params, Params], tuple[Any, Any]]] = {  # first and other weights: task and private state
    "fedprox": lambda w, v: (fedprox.Train(w, 0.5, RECIPES["momentum"]), None),
    "ditto": lambda w, v: (ditto.Train(w, 0.5, RECIPES["momentum"]), ditto.Mine(v)),
    "scaffold": lambda w, v: (scaffold.Train(w, {n: 0.1 * x for n, x in v.items()}, RECIPE), scaffold.Mine(w)),
}


@pytest.mark.parametrize("name", TASKS)
def test_methods_with_a_pull(process: Process, name: str) -> None:
    train, method = data(10), methods.load(name)
    task, mine = TASKS[name](MODEL.init(0), MODEL.init(1))
    board = FitClient(process.board(), MODEL, fit_setup(MODEL, fedavg.Config(RECIPE)), method.programs, train)
    outcome = board.run(Job(number=0, client=0, samples=10, task=task, key=5, mine=mine))
    assert outcome.done is not None, outcome.lost
    theirs = method.programs[type(task)](task, Local(MODEL, train, mine, torch.tensor(5)))
    assert apart(outcome.done.update.weights, theirs.update.weights) < 1e-5
    free = fit(MODEL, task.weights, train, task.recipe, key=torch.tensor(5))
    if name == "fedprox":
        assert apart(free, theirs.update.weights) > 1e-3  # the pull is felt
    if mine is not None:
        ((own, wanted),) = zip(vars(outcome.done.mine).values(), vars(theirs.mine).values(), strict=True)
        assert apart(own, wanted) < 1e-5


@pytest.mark.parametrize("form", ["float32", "int8"])
def test_a_personal_head(process: Process, form: str) -> None:
    """What lies before the head rests, also where weights are rounded at random."""
    train, config = data(10), ftl.Config(tune="last", recipe=RECIPES["momentum"])
    weights = precision.loaded(precision.stored(MODEL.init(0), form))
    board = FitClient(process.board(), MODEL, fit_setup(MODEL, config, form), ftl.PROGRAMS, train)
    task, mine = ftl.Tune(weights, True, config.recipe), ftl.Mine(weights, torch.zeros(()))
    outcome = board.run(Job(number=0, client=0, samples=10, task=task, key=5, mine=mine))
    assert outcome.done is not None, outcome.lost
    ours = outcome.done.mine.weights
    if form == "float32":
        assert apart(ours, ftl.tune(task, Local(MODEL, train, mine, torch.tensor(5))).mine.weights) < 1e-5
    for part in weights:
        assert torch.equal(ours[part], weights[part]) == (not part.startswith("fc")), part


def test_what_stands_behind_an_address() -> None:
    found = checked_options("serial:/dev/ttyACM0@115200?weights=int8&keep=fours")
    assert (found.key, found.weights, found.keep) == (None, "int8", "fours")
    assert checked_options("tcp:127.0.0.1:7001").keep == "segments"
    with pytest.raises(BadInput, match=r"board: keep.*'some' is not known"):
        checked_options("qemu:nano33?keep=some")
    with pytest.raises(BadInput, match="board: option"):
        checked_options("qemu:nano33?kept=int8")


def test_without_fedcfc_s_terms_it_takes_less_memory() -> None:
    """No CUD, LUD, direction and tangents; momentum and a pull are as long as the weights."""
    small, bound = fit_setup(MODEL, fedavg.Config(RECIPE)), setup_of(MODEL, fedcfc.Config())
    plain, momentum, pulled = (memory(replace(small, extras=LOSS_ALONE | extra)) for extra in (0, VELOCITY, PULL))
    assert plain.vectors == 0
    assert momentum.vectors == pulled.vectors == plain.weights
    assert plain.total < memory(replace(small, extras=0)).total == memory_needed(bound)


@pytest.mark.skipif(emulation() is not None, reason=str(emulation()))
def test_an_emulated_board_trains_a_cfc_32_within_96_kb(tmp_path: Path) -> None:
    """Under FedAvg, with every fourth state kept: 1e-5 off PyTorch, and this machine's bits."""
    model = build("cfc", (125, 6), 6, {"hidden": 32, "backbone": 32, "head": 32})
    config, weights = fedavg.Config(Recipe(epochs=1, batch=2, lr=0.05)), model.init(1)
    train = data(2, steps=125, channels=6, classes=6)
    setup = fit_setup(model, config, keep="fours")
    job = Job(number=0, client=0, samples=2, task=fedavg.Train(weights, config.recipe), key=9)
    process = Process(tmp_path / "host", arena=96 * KB)
    here = FitClient(process.board(), model, setup, fedavg.PROGRAMS, train).run(job).done
    process.kill()
    assert here is not None
    image = firmware_build(replace(BOARDS["nrf52832"], ram=96 * KB), memory_needed(setup))
    with Emulator(image.elf, f"unix:{tmp_path / 'line'}", tmp_path / "flash") as emulator:
        board = Board("emulated", emulator.address, silence=60.0)
        outcome = FitClient(board, model, setup, fedavg.PROGRAMS, train).run(job)
        stats = board.stats()
        board.close()
    assert outcome.done is not None, outcome.lost
    assert apart(outcome.done.update.weights, fit(model, weights, train, config.recipe, key=torch.tensor(9))) < 1e-5
    assert apart(outcome.done.update.weights, here.update.weights) == 0.0
    assert stats.fixed + stats.stack <= 96 * KB


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
