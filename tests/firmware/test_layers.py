"""Layers on a board against `learn.fit`: the same weights after whole trainings, for four kinds of network."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.boards import Process, apart, data, emulation, series
from safetensors.torch import load_file

from potluck import methods
from potluck.engines.chunks import Job
from potluck.engines.serial.board import Board
from potluck.errors import BadInput
from potluck.firmware.boards import BOARDS, KB
from potluck.firmware.emulator import Emulator
from potluck.firmware.fit import FitClient, fit_setup
from potluck.firmware.image import build
from potluck.firmware.layers import layered_setup
from potluck.firmware.shape import memory, memory_needed
from potluck.fleet import Data, Local, Params
from potluck.learn import Recipe, fit
from potluck.methods import ditto, fedavg, feddyn, fedper, fedprox, ftl, scaffold
from potluck.methods.parts.fedcfc import precision
from potluck.models import Model
from potluck.models import build as model_of
from potluck.runs import drive
from potluck.runs.experiment import Experiment
from potluck.runs.results import Run

NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "softmax": ("softmax", {}),
    "perceptron": ("mlp", {"hidden": (9, 7), "activation": "tanh"}),
    "relu": ("mlp", {"hidden": (11,)}),
    "convolutions": ("cnn1d", {"channels": (4, 5), "kernel": 3}),
    "strides and padding": (
        "cnn1d",
        {"channels": (4,), "kernel": 4, "stride": 2, "padding": 2, "pool": 1, "hidden": (6,)},
    ),
    "gru": ("gru", {"hidden": 6}),
}
RECIPES = {
    "plain": Recipe(epochs=2, batch=4, lr=0.1),
    "momentum": Recipe(epochs=2, batch=3, lr=0.05, momentum=0.9),
    "clipped": Recipe(epochs=1, batch=32, lr=0.2, clip=0.05),
}


def network(name: str) -> Model:
    kind, settings = NETWORKS[name]
    return model_of(kind, (12, 3), 4, settings)


def client_of(board: Board, model: Model, config: Any, train: Data, valid: Data | None = None) -> FitClient:
    return FitClient(
        board, model, fit_setup(model, config), {**fedavg.PROGRAMS, **fedprox.PROGRAMS, **ftl.PROGRAMS}, train, valid
    )


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_task_of_fedavg_is_what_fit_does(process: Process, name: str, recipe: str) -> None:
    model, config = network(name), fedavg.Config(RECIPES[recipe])
    train, weights = data(10), model.init(2)
    board = client_of(process.board(), model, config, train, data(4, seed=1))
    outcome = board.run(Job(number=3, client=0, samples=10, task=fedavg.Train(weights, config.recipe), key=77))
    assert outcome.done is not None, outcome.lost
    ours = outcome.done.update.weights
    theirs = fit(model, weights, train, config.recipe, key=torch.tensor(77))
    assert apart(theirs, weights) > 1e-3
    assert apart(ours, theirs) < 1e-5
    assert "1 trainings" in outcome.note


def test_unequal_lengths_are_read_at_their_end(process: Process) -> None:
    model = network("gru")
    train = replace(data(10), length=torch.tensor([12 - i % 5 for i in range(10)]))
    config = fedavg.Config(RECIPES["plain"])
    board = client_of(process.board(), model, config, train)
    weights = model.init(0)
    outcome = board.run(Job(number=0, client=0, samples=10, task=fedavg.Train(weights, config.recipe), key=5))
    assert outcome.done is not None, outcome.lost
    theirs = fit(model, weights, train, config.recipe, key=torch.tensor(5))
    assert apart(outcome.done.update.weights, theirs) < 1e-5


def test_a_proximal_term(process: Process) -> None:
    model, train = network("relu"), data(10)
    config = fedprox.Config(mu=0.5, recipe=RECIPES["momentum"])
    board = client_of(process.board(), model, config, train)
    weights = model.init(0)
    task = fedprox.Train(weights, config.mu, config.recipe)
    outcome = board.run(Job(number=0, client=0, samples=10, task=task, key=5))
    assert outcome.done is not None, outcome.lost
    theirs = fedprox.train(task, Local(model, train, None, torch.tensor(5))).update.weights
    free = fit(model, weights, train, config.recipe, key=torch.tensor(5))
    assert apart(outcome.done.update.weights, theirs) < 1e-5
    assert apart(free, theirs) > 1e-3


PERSONAL: dict[str, Callable[[Params, Params], tuple[Any, Any]]] = {  # first and other weights: task and private state
    "ditto": lambda w, v: (ditto.Train(w, 0.5, RECIPES["plain"]), ditto.Mine(v)),
    "fedper": lambda w, v: (fedper.Train(dict(list(w.items())[:2]), RECIPES["plain"]), fedper.Mine(v)),
    "scaffold": lambda w, v: (scaffold.Train(w, v, RECIPES["plain"]), scaffold.Mine(w)),
    "feddyn": lambda w, v: (feddyn.Train(w, 0.3, RECIPES["plain"]), feddyn.Mine(v)),
}


@pytest.mark.parametrize("name", PERSONAL)
def test_methods_with_a_pull_or_a_private_model(process: Process, name: str) -> None:
    """Ditto's personal model is drawn to the global one, SCAFFOLD's steps have control variates: both on the board."""
    model, train, method = network("relu"), data(10), methods.load(name)
    task, mine = PERSONAL[name](model.init(0), model.init(1))
    config = method.configure({"recipe.batch": 4})
    board = FitClient(process.board(), model, fit_setup(model, config), method.programs, train)
    outcome = board.run(Job(number=0, client=0, samples=10, task=task, key=5, mine=mine))
    assert outcome.done is not None, outcome.lost
    theirs = method.programs[type(task)](task, Local(model, train, mine, torch.tensor(5)))
    assert apart(outcome.done.update.weights, theirs.update.weights) < 1e-5
    ((ours, own),) = zip(vars(outcome.done.mine).values(), vars(theirs.mine).values(), strict=True)
    assert apart(ours, own) < 1e-5


def test_a_personal_head_moves_alone(process: Process) -> None:
    """FTL's fine-tuning of the last layer: what lies before it stays bit for bit."""
    model, train = network("convolutions"), data(10)
    config = ftl.Config(tune="last", recipe=RECIPES["plain"])
    weights = model.init(0)
    board = client_of(process.board(), model, config, train)
    task, mine = ftl.Tune(weights, True, config.recipe), ftl.Mine(weights, torch.zeros(()))
    outcome = board.run(Job(number=0, client=0, samples=10, task=task, key=5, mine=mine))
    assert outcome.done is not None, outcome.lost
    ours = outcome.done.mine.weights
    theirs = ftl.tune(task, Local(model, train, mine, torch.tensor(5))).mine.weights
    assert apart(ours, theirs) < 1e-5
    for part in weights:
        assert torch.equal(ours[part], weights[part]) == (not part.startswith("fc")), part


def test_a_board_that_was_started_anew_gets_its_network_again(process: Process) -> None:
    model, train, config = network("relu"), data(10), fedavg.Config(RECIPES["plain"])
    board = client_of(process.board(), model, config, train)
    job = Job(number=0, client=0, samples=10, task=fedavg.Train(model.init(0), config.recipe), key=5)
    first = board.run(job).done
    process.kill()
    again = board.run(job).done
    assert first is not None
    assert again is not None
    assert apart(again.update.weights, first.update.weights) == 0.0


def test_what_boards_lack_is_refused(process: Process) -> None:
    model = network("relu")
    with pytest.raises(BadInput, match="sgd with batches of at most 64"):
        fit_setup(model, fedavg.Config(Recipe(optimiser="adam")))
    with pytest.raises(BadInput, match=r"model\.name: on boards"):
        layered_setup(model_of("lstm", (12, 3), 4, {}))
    with pytest.raises(BadInput, match=r"model\.dropout: must be 0"):
        layered_setup(model_of("mlp", (12, 3), 4, {"dropout": 0.5}))
    with pytest.raises(BadInput, match="at most 8 layers of 512 units"):
        layered_setup(model_of("mlp", (12, 3), 4, {"hidden": (600,)}))
    moon = methods.load("moon")
    config = moon.configure({"recipe.batch": 4})
    board = FitClient(process.board(), model, fit_setup(model, config), moon.programs, data(10))
    weights = model.init(0)
    task = next(iter(moon.programs))(weights, config.mu, config.temperature, config.recipe)
    outcome = board.run(Job(number=0, client=0, samples=10, task=task, key=5, mine=moon.private(weights, config)))
    assert outcome.done is None
    assert "a loss or rows of its own, which boards lack" in outcome.lost


SIZES = {  # what must train within so many kB, the stack and the client among them
    "mlp 64-32-6": ("mlp", (64, 1), {"hidden": (32,)}, 64),
    "1-D CNN for windows of HAR": ("cnn1d", (128, 9), {"channels": (8, 16), "kernel": 5}, 96),
    "gru-16": ("gru", (128, 9), {"hidden": 16}, 96),
}


@pytest.mark.parametrize("name", SIZES)
def test_memory_of_the_plan(name: str) -> None:
    kind, shape, settings, most = SIZES[name]
    model = model_of(kind, shape, 6, settings)
    parts = memory(layered_setup(model, Recipe(momentum=0.9), pulled=True))
    count = sum(w.numel() for w in model.init(0).values())
    assert parts.weights == parts.gradient == -(-count * 4 // 8) * 8
    assert parts.vectors == 2 * parts.weights
    assert parts.total + 4 * KB < most * KB


@pytest.mark.skipif(emulation() is not None, reason=str(emulation()))
@pytest.mark.parametrize("name", SIZES)
def test_the_emulated_board_trains_as_this_machine_does(tmp_path: Path, name: str) -> None:
    """Within its kB, behind the fence of a part with 64 kB or 96 kB; the weights within 1e-5 of PyTorch's."""
    kind, shape, settings, most = SIZES[name]
    model, config = model_of(kind, shape, 6, settings), fedavg.Config(Recipe(epochs=1, batch=4, lr=0.05))
    train = data(8, steps=shape[0], channels=shape[1], classes=6)
    setup = fit_setup(model, config)
    part = replace(BOARDS["nrf52832"], ram=most * KB)
    image = build(part, memory_needed(setup))
    weights = model.init(1)
    with Emulator(image.elf, f"unix:{tmp_path / 'line'}", tmp_path / "flash") as emulator:
        board = Board("emulated", emulator.address, silence=60.0)
        client = client_of(board, model, config, train)
        outcome = client.run(Job(number=0, client=0, samples=8, task=fedavg.Train(weights, config.recipe), key=9))
        stats = board.stats()
        board.close()
    assert outcome.done is not None, outcome.lost
    theirs = fit(model, weights, train, config.recipe, key=torch.tensor(9))
    assert apart(outcome.done.update.weights, theirs) < 1e-5
    assert stats.fixed + stats.stack <= most * KB


MIXED = {
    "fedavg": ({"name": "mlp", "hidden": [12]}, {"name": "fedavg", "recipe.batch": 4}),
    "a personal head": (
        {"name": "cnn1d", "channels": [4], "kernel": 3},
        {"name": "ftl", "tune": "last", "recipe.batch": 4, "federated": 0.5},
    ),
    "a personal model": ({"name": "gru", "hidden": 5}, {"name": "ditto", "recipe.batch": 4}),
    "a CFC without FedCFC": (
        {"name": "cfc", "hidden": 6, "backbone": 8, "head": 6},
        {"name": "fedavg", "recipe.batch": 4},
    ),
    "fedcfc": ({"name": "cfc", "hidden": 6, "backbone": 8, "head": 6}, {"name": "fedcfc", "recipe.batch": 4}),
}


@pytest.mark.skipif(emulation() is not None, reason=str(emulation()))
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in ("fedavg", "a personal head") else [pytest.mark.slow]) for n in MIXED]
)
def test_four_emulated_boards_and_twenty_simulated_clients(tmp_path: Path, name: str) -> None:
    """The same run, all simulated: the same tasks in the same order, and models within 1e-5."""
    x, y = series(24 * 8, classes=3)
    np.savez(tmp_path / "waves.npz", x=x, y=y, subject=np.arange(len(y)) % 24)
    model, method = MIXED[name]
    plan = Experiment.of(
        {
            "data": {"source": str(tmp_path / "waves.npz")},
            "partition": {"kind": "subject", "valid_share": 0.2},
            "fleet": {"devices": "pc"},
            "model": model,
            "method": method,
            "stop": {"rounds": 2},
            "run": {"out": str(tmp_path / "runs"), "evaluate_every": 2, "checkpoint_seconds": 1e9},
        }
    )
    kinds = {"s00": "qemu:nano33", "s05": "qemu:stm32f303?keep=fours", "s11": "qemu:nrf52832", "s23": "qemu:m4express"}
    plain, mixed = drive.start(plan), drive.start(plan.with_(fleet={"boards": kinds}))
    assert mixed.summary["ended"] == "2 rounds done"
    assert tasks(mixed) == tasks(plain)
    ours, theirs = models(mixed), models(plain)
    assert ours.keys() == theirs.keys()
    assert max(apart(ours[client], theirs[client]) for client in theirs) < 1e-5


def tasks(run: Run) -> list[tuple[Any, ...]]:
    with sqlite3.connect(run.folder / "run.db") as db:
        rows = db.execute("SELECT number, client, program, sent, outcome FROM tasks ORDER BY sent, number").fetchall()
    db.close()
    return rows


def models(run: Run) -> dict[str, dict[str, torch.Tensor]]:
    return {
        str(file.relative_to(run.folder)): load_file(file)
        for file in sorted((run.folder / "models").rglob("*.safetensors"))
    }


@pytest.mark.parametrize("name", ["relu", "perceptron", "convolutions", "strides and padding", "gru"])
def test_int8_layers_compute_in_whole_numbers_and_learn(process: Process, name: str) -> None:
    """The mean of many trainings is near one of float32 weights from the same start: rounding at random is unbiased."""
    model, config = network(name), fedavg.Config(Recipe(epochs=1, batch=5, lr=0.3))
    train = data(10)
    setup = fit_setup(model, config, form="int8")
    board = FitClient(process.board(), model, setup, fedavg.PROGRAMS, train, data(4, seed=1))
    start = precision.loaded(precision.stored(model.init(2), "int8"))
    theirs = fit(model, start, train, config.recipe, key=torch.tensor(3))
    moved = []
    for number in range(24):  # one order of the samples, unlike draws: the key of the order is folded from 3 each time
        task = fedavg.Train(start, config.recipe)
        outcome = board.run(Job(number=number, client=0, samples=10, task=task, key=3 + number, mine=None))
        assert outcome.done is not None, outcome.lost
        moved.append(outcome.done.update.weights)
    flat = lambda tree: torch.cat([tree[part].flatten() for part in start])  # noqa: E731
    steps = torch.stack([flat(one) - flat(start) for one in moved])
    wanted = flat(theirs) - flat(start)
    assert float(steps.std(0).mean()) > 0  # they were rounded at random
    mean = steps.mean(0)
    assert float(torch.cosine_similarity(mean, wanted, dim=0)) > 0.9
    assert 0.7 < float(mean.norm() / wanted.norm()) < 1.4


def test_int8_layers_take_a_quarter_of_the_memory_for_weights() -> None:
    model = model_of("mlp", (64, 1), 6, {"hidden": (32,)})
    whole, small = (memory(layered_setup(model, form=form)) for form in ("float32", "int8"))
    assert small.weights < 0.35 * whole.weights
    assert small.gradient == whole.gradient


SHAPES: dict[str, tuple[str, tuple[int, ...], int, dict[str, Any]]] = {  # rows of 11 weights: a block and a rest
    "gru": ("gru", (12, 3), 4, {"hidden": 11}),
    "strides and padding": (*NETWORKS["strides and padding"][:1], (12, 3), 4, NETWORKS["strides and padding"][1]),
}


@pytest.mark.skipif(emulation() is not None, reason=str(emulation()))
@pytest.mark.parametrize(("name", "form"), [("gru", "float32"), ("strides and padding", "int8")])
def test_layers_on_an_emulated_board_give_this_machine_s_bits(tmp_path: Path, name: str, form: str) -> None:
    """Blocks of eight numbers, or pairs of products in one instruction there; one after the other here."""
    model, config = model_of(*SHAPES[name]), fedavg.Config(RECIPES["momentum"])
    setup, train = fit_setup(model, config, form=form), data(10)
    task = fedavg.Train(model.init(2), config.recipe)
    job = Job(number=0, client=0, samples=10, task=task, key=5)
    process = Process(tmp_path / "host")
    here = FitClient(process.board(), model, setup, fedavg.PROGRAMS, train).run(job).done
    process.kill()
    image = build(BOARDS["nrf52832"], memory_needed(setup))
    with Emulator(image.elf, f"unix:{tmp_path / 'line'}", tmp_path / "flash") as emulator:
        client = FitClient(Board("there", emulator.address, silence=60.0), model, setup, fedavg.PROGRAMS, train)
        there = client.run(job).done
        client.close()
    assert here is not None
    assert there is not None
    assert apart(there.update.weights, here.update.weights) == 0.0
