"""A task done by a board beside the same task done by `fedcfc.train`: the same report, the same weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.boards import Process, data

from potluck import keys, methods
from potluck.engines.chunks import Job
from potluck.engines.serial.board import Board
from potluck.errors import BadInput
from potluck.firmware.client import BoardClient
from potluck.firmware.shape import setup_of
from potluck.fleet import Data, Local
from potluck.methods import fedcfc
from potluck.methods.parts.fedcfc import precision
from potluck.methods.parts.fedcfc.quantised import packed, unpacked
from potluck.models import build

SHAPE: dict[str, Any] = {"hidden": 5, "backbone": 7, "head": 6, "interval": 0.5}
MODEL = build("cfc", (12, 3), 4, SHAPE)
KEY = keys.number("a task")
METHOD = methods.load("fedcfc")


def client_of(
    process: Process, config: fedcfc.Config, train: Data, valid: Data | None, form: str = "float32"
) -> BoardClient:
    setup = setup_of(MODEL, config, timed=train.t is not None, form=form)
    return BoardClient(process.board(), MODEL, setup, train, valid)


def round_of(config: fedcfc.Config, wire: str = "float32", aimed: bool = True) -> fedcfc.Round:
    size = 5 * 6
    cud = keys.normal(keys.key("cud"), (size,)) if aimed else torch.zeros(size)
    cum = torch.tensor(0.05 if aimed else -1.0)
    return fedcfc.Round(packed(cud, wire), cum, {}, {}, config.recipe.batch, 0)


CASES: dict[str, dict[str, Any]] = {
    "mini-batches": {"recipe.batch": 4},
    "one sample at a time": {"recipe.batch": 1},
    "several passes": {"recipe.batch": 4, "recipe.epochs": 3},
    "a batch larger than the data": {"recipe.batch": 32},
    "float16 on the wire": {"recipe.batch": 4, "wire": "float16"},
    "int8 on the wire": {"recipe.batch": 4, "wire": "int8"},
    "the gradient of the task alone": {"recipe.batch": 4, "lud": "task"},
}


@pytest.mark.parametrize("name", [*CASES, "irregular", "first round"])
def test_a_round_is_what_fedcfc_trains(process: Process, name: str) -> None:
    config = METHOD.configure({"recipe.lr": 0.05, **CASES.get(name, {"recipe.batch": 4})})
    train, valid = data(10, irregular=name == "irregular"), data(6, seed=1, irregular=name == "irregular")
    task = round_of(config, config.wire, aimed=name != "first round")
    mine = fedcfc.private(MODEL.init(0), config)
    board = client_of(process, config, train, valid)
    outcome = board.run(Job(number=3, client=0, samples=10, task=task, key=KEY, mine=mine))
    assert outcome.done is not None, outcome.lost
    board.took(3)
    ours, weights = outcome.done.update, board.fetch().weights
    theirs = fedcfc.train(task, Local(MODEL, train, mine, torch.tensor(KEY), valid=valid))
    near = {"float32": 0.0, "float16": 1e-3, "int8": 1.0 / 127}[config.wire]
    expected = unpacked(theirs.update.lud)
    # R_d divides by ‖q‖: float32 leaves a few 1e-6 of terms that cancel, on either side.
    assert float((unpacked(ours.lud) - expected).abs().max()) <= near * float(expected.abs().max()) + 3e-6
    assert float(ours.valid) == float(theirs.update.valid)
    for part, value in theirs.mine.weights.items():
        assert torch.allclose(weights[part], value, atol=1e-5, rtol=0), part
    assert board.fetch() is None  # nothing newer


def test_an_int8_board_rounds_as_a_simulated_one(process: Process) -> None:
    config = METHOD.configure({"recipe.lr": 0.2, "recipe.batch": 4, "precisions": ["int8"]})
    train = data(10)
    mine = fedcfc.private(MODEL.init(0), config)
    mine = replace(mine, weights=precision.stored(mine.weights, "int8"))
    task = round_of(config)
    board = client_of(process, config, train, None, "int8")
    outcome = board.run(Job(number=0, client=0, samples=10, task=task, key=KEY, mine=mine))
    assert outcome.done is not None, outcome.lost
    board.took(0)
    weights = board.fetch().weights
    theirs = fedcfc.train(task, Local(MODEL, train, mine, torch.tensor(KEY))).mine.weights
    moved = sum(int((theirs[n] != mine.weights[n]).sum()) for n in theirs if not n.endswith("#scale"))
    other = sum(int((theirs[n] != weights[n]).sum()) for n in theirs if not n.endswith("#scale"))
    assert moved > 20
    assert other <= 2  # where float32 tips a floor


def test_a_board_that_was_started_anew_goes_on(process: Process) -> None:
    """Its weights are those kept last; a task it had done but not kept is done again with the same result."""
    config = METHOD.configure({"recipe.lr": 0.05, "recipe.batch": 4})
    train = data(10)
    mine = fedcfc.private(MODEL.init(0), config)
    board = client_of(process, config, train, None)
    jobs = [Job(number=n, client=0, samples=10, task=round_of(config), key=KEY + n, mine=mine) for n in range(3)]
    assert board.run(jobs[0]).done is not None
    board.took(0)
    first = board.run(jobs[1]).done
    process.kill()
    lost = board.run(jobs[1])
    assert lost.done is not None  # the line is opened anew, the process with it
    assert first is not None
    assert torch.equal(lost.done.update.lud.values, first.update.lud.values)
    board.took(1)
    assert board.run(jobs[2]).done is not None


def test_a_board_that_is_not_there_is_lost(tmp_path: Path) -> None:
    config = METHOD.configure({"recipe.batch": 4})
    board = Board("away", f"unix:{tmp_path / 'nobody'}")
    client = BoardClient(board, MODEL, setup_of(MODEL, config), data(4))
    mine = fedcfc.private(MODEL.init(0), config)
    outcome = client.run(Job(number=0, client=0, samples=4, task=round_of(config), key=1, mine=mine))
    assert outcome.done is None
    assert "does not answer" in outcome.lost


def test_a_network_too_large_for_the_board_is_lost_with_a_reason(tmp_path: Path) -> None:
    process = Process(tmp_path / "flash", arena=4096)
    config = METHOD.configure({"recipe.batch": 4})
    client = client_of(process, config, data(4), None)
    mine = fedcfc.private(MODEL.init(0), config)
    outcome = client.run(Job(number=0, client=0, samples=4, task=round_of(config), key=1, mine=mine))
    process.kill()
    assert outcome.done is None
    assert "does not fit" in outcome.lost


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"variant": "favg"}, "method.variant"),
        ({"federate": "g"}, "method.federate"),
        ({"terms.second": "difference"}, "method.terms.second"),
        ({"classes.first": 2}, "method.classes.first"),
        ({"precisions": ("float32", "float16")}, "method.precisions"),
        ({"recipe.batch": 100}, "method.recipe.batch"),
        ({"recipe.epochs": 40}, "method.recipe.epochs"),
    ],
)
def test_what_no_board_knows_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        setup_of(MODEL, METHOD.configure(settings))


def test_other_models_are_refused() -> None:
    with pytest.raises(BadInput, match="silu"):
        setup_of(build("cfc", (12, 3), 4, {**SHAPE, "activation": "silu"}), fedcfc.Config())
    for other in ({"gate": "leaky"}, {"time_bias": True}, {"mixed": True}):
        with pytest.raises(BadInput, match="printed form"):
            setup_of(build("cfc", (12, 3), 4, {**SHAPE, **other}), fedcfc.Config())
    with pytest.raises(BadInput, match=r'model\.name: must be "cfc" on boards'):
        setup_of(build("gru", (12, 3), 4, {"hidden": 4}), fedcfc.Config())
    with pytest.raises(BadInput, match="FedCFC only"):
        setup_of(MODEL, object())
