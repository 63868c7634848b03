"""FedBits on a board: it keeps the common weights and what rounding left out; the line carries a few bits a number."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.boards import Process, apart, data

from potluck.engines.chunks import Job
from potluck.engines.serial.board import Refused
from potluck.engines.serial.messages import Fit, Region, Shift, Tell, Trouble
from potluck.firmware.bits import BitsClient, rounds_there, sharing
from potluck.firmware.fit import fit_setup
from potluck.firmware.program import BitsProgram
from potluck.fleet import Arrival, Local
from potluck.learn import Recipe
from potluck.methods import fedbits
from potluck.models import Model, build
from potluck.tensors import zeros_like

CFC = build("cfc", (12, 3), 4, {"hidden": 5, "backbone": 8, "head": 6, "interval": 0.5})
GRU = build("gru", (12, 3), 4, {"hidden": 5})
CONV = build("cnn1d", (12, 3), 4, {"channels": (4, 5), "pool": 2})
RECIPE = Recipe(epochs=2, batch=4, lr=0.1, clip=1.0)


class Pair:
    """One client on a board and the same one on this machine; the server hears the board."""

    def __init__(self, process: Process, model: Model, bits: int, rows: Any = None) -> None:
        self.config = fedbits.Config(bits=bits, recipe=RECIPE)
        self.model, self.rows = model, data(10) if rows is None else rows
        setup = fit_setup(model, self.config)
        assert rounds_there(model, self.config, setup)
        self.board = BitsClient(process.board(), model, sharing(setup), self.rows)
        weights, last = model.init(1), model.last_layers(1)
        self.names = tuple(name for name in weights if name not in last)
        self.state = fedbits.State(weights, self.names, {name: torch.zeros_like(weights[name]) for name in self.names})
        self.mine = self.ours = fedbits.private(weights, self.config)  # as the engine has it; this machine's
        self.at = self.number = 0

    def round(self, taken: bool = True) -> tuple[fedbits.Trained, fedbits.Trained]:
        """What the board and this machine tell; `taken` is whether the server accepts it."""
        task = fedbits.task_of(self.state, self.config, self.at)
        number, self.number = self.number, self.number + 1
        outcome = self.board.run(Job(number=number, client=0, samples=10, task=task, key=7 + number, mine=self.mine))
        assert outcome.done is not None, outcome.lost
        done = fedbits.train(task, Local(self.model, self.rows, self.ours, torch.tensor(7 + number)))
        if taken:
            self.board.took(number)
            self.ours, self.at = done.mine, self.state.version
            arrival = Arrival("c", outcome.done.update, number, 0.0, 0.0)
            self.state = fedbits.moved(self.state, self.config, [arrival])
        return outcome.done.update, done.update

    def fetched(self) -> fedbits.Mine:
        self.mine = self.board.fetch() or self.mine
        return self.mine


@pytest.mark.parametrize(("model", "bits"), [(CFC, 7), (CFC, 1), (GRU, 3), (CONV, 5)])
def test_the_board_tells_what_this_machine_tells(process: Process, model: Model, bits: int) -> None:
    pair = Pair(process, model, bits)
    for _ in range(3):
        known = {name: pair.state.weights[name] for name in pair.names}
        theirs, ours = pair.round()
        assert torch.allclose(theirs.scales, ours.scales, rtol=1e-3)
        assert theirs.numbers.shape == ours.numbers.shape
        assert float((theirs.numbers == ours.numbers).float().mean()) > 0.9  # a rounding may be on the edge
        assert float(theirs.examples) == 10
        mine = pair.fetched()
        assert apart(mine.weights, pair.ours.weights) < 1e-3
        assert all(torch.equal(mine.common[name], known[name]) for name in pair.names)
        step = float(theirs.scales.max()) * 2
        assert apart(mine.left, pair.ours.left) < step
        assert max(float(value.abs().max()) for value in mine.left.values()) > 0


def test_an_update_that_was_not_taken_leaves_no_trace(process: Process) -> None:
    pair = Pair(process, CFC, 6)
    pair.round()
    pair.round(taken=False)  # e, w and c of the board are ahead, and count for nothing
    theirs, ours = pair.round()
    assert torch.allclose(theirs.scales, ours.scales, rtol=1e-3)
    assert apart(pair.fetched().weights, pair.ours.weights) < 1e-3


def test_a_power_cut_and_an_empty_board(process: Process, tmp_path: Path) -> None:
    pair = Pair(process, CFC, 6)
    pair.round()
    pair.fetched()
    process.kill()
    before = pair.board.board.sent
    theirs, ours = pair.round()  # goes on with what flash holds
    assert torch.allclose(theirs.scales, ours.scales, rtol=1e-3)
    assert pair.board.board.sent - before < 4 * sum(value.numel() for value in pair.mine.weights.values())
    pair.fetched()
    process.kill()
    (tmp_path / "flash").unlink()
    theirs, ours = pair.round()  # set up again, with the common weights of now
    assert torch.allclose(theirs.scales, ours.scales, rtol=1e-3)
    assert apart(pair.fetched().weights, pair.ours.weights) < 1e-3


def test_changes_that_were_missed_and_whole_weights(process: Process) -> None:
    pair = Pair(process, CFC, 6)
    pair.round()
    for _ in range(2):  # others' rounds
        other = fedbits.train(
            fedbits.task_of(pair.state, pair.config, 0),
            Local(CFC, data(10, seed=3), fedbits.private(CFC.init(1), pair.config), torch.tensor(3)),
        )
        pair.state = fedbits.moved(pair.state, pair.config, [Arrival("d", other.update, 0, 0.0, 0.0)])
    assert fedbits.task_of(pair.state, pair.config, pair.at).numbers.shape[0] == 3
    known = {name: pair.state.weights[name] for name in pair.names}
    pair.round()
    assert all(torch.equal(pair.fetched().common[name], known[name]) for name in pair.names)
    pair.at = -1
    assert fedbits.task_of(pair.state, pair.config, pair.at).whole
    theirs, ours = pair.round()
    assert torch.allclose(theirs.scales, ours.scales, rtol=1e-3)


def test_the_line_carries_the_price_of_the_method(process: Process) -> None:
    """The network of FedCFC's figures: 2,640 shared numbers of 7 bits, frames and checksums included."""
    model = build("cfc", (25, 9), 6, {"hidden": 16, "backbone": 24, "head": 16})
    pair = Pair(process, model, 7, data(4, steps=25, channels=9, classes=6))
    pair.round()
    line = pair.board.board
    before = line.sent, line.received
    pair.round()
    assert line.sent - before[0] < 2900
    assert line.received - before[1] < 2900


def test_behind_a_client_machine_the_line_carries_bits_too(process: Process) -> None:
    """Beside the change, the machine reads the read-out alone; what rounding left out stays on the board."""
    model = build("cfc", (25, 9), 6, {"hidden": 16, "backbone": 24, "head": 16})
    config, rows, weights = fedbits.Config(recipe=RECIPE), data(4, steps=25, channels=9, classes=6), model.init(1)
    names = tuple(name for name in weights if name not in model.last_layers(1))
    program, line = BitsProgram("test", "unix:none"), process.board()
    program._board = line  # a restart before each task: the machine lets go of the line in between
    state = fedbits.State(weights, names, {name: torch.zeros_like(weights[name]) for name in names})
    theirs = ours = fedbits.private(weights, config)
    at, sent, received = 0, 0, 0
    for number, taken in enumerate((True, True, False, True, True)):
        task, before = fedbits.task_of(state, config, at), (line.sent, line.received)
        there = program(task, Local(model, rows, theirs, torch.tensor(7 + number)))
        here = fedbits.train(task, Local(model, rows, ours, torch.tensor(7 + number)))
        assert torch.allclose(there.update.scales, here.update.scales, rtol=1e-3)
        assert float((there.update.numbers == here.update.numbers).float().mean()) > 0.9
        sent, received = line.sent - before[0], line.received - before[1]
        if number in (1, 2, 4):  # not set up anew
            assert sent < 2700
            assert received < 3200
        if not taken:  # the server refused it: the machine sets the board up with the state before
            ours = replace(ours, left=zeros_like(ours.left))
            continue
        assert isinstance(there.mine, fedbits.Mine)
        theirs, ours, at = there.mine, here.mine, state.version
        assert not theirs.left
        assert apart(theirs.weights, {name: ours.weights[name] for name in model.last_layers(1)}) < 1e-3
        assert all(torch.equal(theirs.common[name], state.weights[name]) for name in names)
        state = fedbits.moved(state, config, [Arrival("c", there.update, number, 0.0, 0.0)])


@pytest.mark.parametrize("settings", [{"bits": 32}, {"strength": 0.5}, {"rounding": "random"}, {"feedback": False}])
def test_what_a_board_cannot_round_is_rounded_by_its_client_machine(process: Process, settings: dict[str, Any]) -> None:
    config, rows, weights = fedbits.Config(**settings, recipe=RECIPE), data(10), CFC.init(1)
    names = tuple(name for name in weights if name not in CFC.last_layers(1))
    state = fedbits.State(weights, names, {name: torch.zeros_like(weights[name]) for name in names})
    program = BitsProgram("test", "unix:none")
    program._trainer._board = process.board()
    theirs = ours = fedbits.private(weights, config)
    for number in range(2):
        task = fedbits.task_of(state, config, number)
        there = program(task, Local(CFC, rows, theirs, torch.tensor(7 + number)))
        here = fedbits.train(task, Local(CFC, rows, ours, torch.tensor(7 + number)))
        assert isinstance(there.mine, fedbits.Mine)
        theirs, ours = there.mine, here.mine
        assert apart(theirs.weights, ours.weights) < 1e-3
        assert there.update.change.keys() == here.update.change.keys()
        state = fedbits.moved(state, config, [Arrival("c", there.update, number, 0.0, 0.0)])


def test_requests_out_of_order_or_spoilt_are_refused(process: Process) -> None:
    pair = Pair(process, CFC, 6)
    pair.round()
    pair.fetched()
    board, last = pair.board.board, sum(CFC.init(0)[name].numel() for name in pair.names)
    change, count = b"\1" * (4 * len(pair.names) + -(-6 * last // 8)), sum(v.numel() for v in CFC.init(0).values())
    good = Shift(50, 0, zlib.crc32(change), 0, last, 6)

    def refused(why: Trouble, shift: Shift) -> None:
        with pytest.raises(Refused) as error:
            board.shift(shift, change)
        assert error.value.trouble == why

    def kept() -> bytes:
        return board.read(Region.WEIGHTS, 12 * count)

    before = kept()
    refused(Trouble.STALE_TASK, replace(good, number=1))
    refused(Trouble.BAD_VALUE, replace(good, bits=9))
    refused(Trouble.BAD_VALUE, replace(good, last=last - 1))
    refused(Trouble.BAD_VALUE, replace(good, first=1))
    refused(Trouble.OTHER_CHANGE, replace(good, crc=1))
    assert kept() == before
    fit = Fit(50, 7, zlib.crc32(before[4 * count : 8 * count]), 0.1, 0.0, 0.0, 1.0, 0, count, 0, 4, 1)
    with pytest.raises(Refused, match="OTHER_WEIGHTS"):  # from weights that no SHIFT began
        board.fit(fit)
    board.shift(good, change)
    once = kept()
    board.shift(good, change)  # the answer was lost
    assert kept() == once != before
    with pytest.raises(Refused, match="NOT_READY"):
        board.change(Tell(50, 0, last, 6))  # before a training
    board.fit(replace(fit, crc=zlib.crc32(once[4 * count : 8 * count])))
    assert board.change(Tell(50, 0, last, 6)) == board.change(Tell(50, 0, last, 6))
