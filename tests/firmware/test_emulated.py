"""The image on an emulated Cortex-M4F: the host's bits, the board's memory, and a run that mixes boards with others."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.boards import Process, data, emulation, series
from safetensors.torch import load_file

from potluck import keys, methods
from potluck.engines.chunks import Job
from potluck.engines.serial.board import Board
from potluck.engines.serial.messages import Kind, Region, Stats, Train, Trained
from potluck.errors import BadInput
from potluck.firmware import toolchain
from potluck.firmware.boards import BOARDS, KB, STACK
from potluck.firmware.client import BoardClient, shelf_of
from potluck.firmware.emulator import Emulator, command
from potluck.firmware.image import Image, build
from potluck.firmware.shape import memory_needed, setup_of, weights_as_stored
from potluck.fleet import Local
from potluck.methods import fedcfc
from potluck.methods.parts.fedcfc import precision
from potluck.methods.parts.fedcfc.quantised import packed
from potluck.models import build as model_of
from potluck.runs import drive
from potluck.runs.experiment import Experiment
from potluck.runs.results import Run

MISSING = emulation()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
SMALL: dict[str, Any] = {"hidden": 9, "backbone": 11, "head": 10}  # no multiple of a block of the inner loops


def conversation(board: Board, form: str, keep: str, kept: str, **shape: Any) -> tuple[list[Trained], bytes, Stats]:
    """Two tasks; what came of them."""
    model = model_of("cfc", (12, 3), 4, {**SMALL, **shape, "interval": 0.5})
    config = methods.load("fedcfc").configure({"recipe.lr": 0.1, "recipe.batch": 3})
    setup = setup_of(model, config, timed=True, keep=keep, kept=kept, form=form)
    weights = precision.stored(model.init(1), form)
    names = list(model.init(1))
    stored, scales = weights_as_stored(weights, names)
    shelf = shelf_of(model, data(5, irregular=True), data(3, irregular=True, seed=1))
    board.connect()
    ready = board.install(setup, stored, scales, shelf)
    cud = keys.normal(keys.key("cud"), (ready.vector,)).numpy().astype("<f4").tobytes()
    answers, luds = [], b""
    for number in range(2):
        answers.append(board.train(Train(number, 77 + number, 0.05, zlib.crc32(cud), 3, 1), cud))
        luds += board.read(Region.LUD, 4 * ready.vector)
        board.keep(number)
    return (
        [replace(answer, ticks=0) for answer in answers],
        luds + board.read(Region.WEIGHTS, len(stored)),
        board.stats(),
    )


@pytest.mark.parametrize(
    ("form", "keep", "kept", "shape"),
    [
        ("float32", "segments", "float32", {}),
        ("int8", "all", "int8", {"layers": (2, 1, 1)}),
        ("float32", "states", "int8", {"layers": (1, 1, 1), "gate": "gated"}),
    ],
)
def test_host_and_board_give_the_same_bits(
    tmp_path: Path, form: str, keep: str, kept: str, shape: dict[str, Any]
) -> None:
    """Losses, LUDs and weights after two tasks: plain C on this machine, the block kernels on the Cortex-M4F."""
    process = Process(tmp_path / "host")
    host = conversation(process.board(), form, keep, kept, **shape)
    process.kill()
    image = build(BOARDS["nrf52832"], 40_000)
    with Emulator(image.elf, f"unix:{tmp_path / 'line'}", tmp_path / "board") as emulator:
        board = Board("emulated", emulator.address, silence=60.0)
        there = conversation(board, form, keep, kept, **shape)
        board.close()
    assert there[0] == host[0]
    assert there[1] == host[1]
    assert there[2].dropped == 0


# hidden 32, 6 channels, windows of 125 readings, exact fBind: at most so many kB with the stack
PATIENCE = 1.0  # seconds of silence, less than the training of the slow board takes by its own clock
LIMITS = {"nano33": ((2, 2, 2), 32, 94), "m4express": ((2, 1, 1), 32, 76), "stm32f303": ((1, 1, 1), 32, 66),
          "nrf52832": ((2, 2, 2), 16, 64)}  # fmt: skip


def table_4_image(name: str) -> tuple[Any, Any, Image]:
    layers, hidden, _ = LIMITS[name]
    shape = {"hidden": hidden, "backbone": hidden, "head": hidden, "layers": layers}
    model = model_of("cfc", (125, 6), 6, shape)
    setup = setup_of(model, methods.load("fedcfc").configure({"recipe.batch": 1}), keep="segments")
    return model, setup, build(BOARDS[name], memory_needed(setup))


@pytest.mark.parametrize("name", LIMITS)
def test_sram_in_all(tmp_path: Path, name: str) -> None:
    """A whole step of the size of Table 4, behind the fence: weights within 1e-5 of PyTorch's, and .data, .bss and the
    painted stack within the kB."""
    model, setup, image = table_4_image(name)
    x, y = series(1, steps=125, channels=6, classes=6)
    one = replace(data(1), x=torch.from_numpy(x), y=torch.from_numpy(y))
    mine = fedcfc.private(model.init(0), methods.load("fedcfc").configure({"recipe.batch": 1}))
    vector = setup.hidden * (setup.head if setup.layers_f == 2 else setup.backbone)
    task = fedcfc.Round(packed(keys.normal(keys.key("cud"), (vector,)), "float32"), torch.tensor(0.01), {}, {}, 1, 0)
    with Emulator(image.elf, f"unix:{tmp_path / 'line'}", tmp_path / "flash") as emulator:
        client = BoardClient(Board(name, emulator.address, silence=60.0), model, setup, one)
        outcome = client.run(Job(number=0, client=0, samples=1, task=task, key=5, mine=mine))
        assert outcome.done is not None, outcome.lost
        client.took(0)
        ours, stats = client.fetch().weights, client.board.stats()
        client.close()
    theirs = fedcfc.train(task, Local(model, one, mine, torch.tensor(5)))
    assert all(torch.allclose(ours[part], value, atol=1e-5, rtol=0) for part, value in theirs.mine.weights.items())
    assert any(not torch.allclose(value, mine.weights[part], atol=1e-4) for part, value in ours.items())
    assert stats.fixed == image.fixed
    assert 300 < stats.stack < STACK
    assert stats.fixed + stats.stack <= LIMITS[name][2] * KB
    assert stats.fixed + stats.stack <= BOARDS[name].ram


def test_what_does_not_fit_does_not_link() -> None:
    """One byte over, and the linker refuses: RAM in its script is the board's."""
    _, _, image = table_4_image("nrf52832")
    most = image.arena + image.left - STACK
    assert build(BOARDS["nrf52832"], most).left >= STACK
    with pytest.raises(BadInput, match="65536 bytes of RAM"):
        build(BOARDS["nrf52832"], most + 8)


def test_the_fence_holds(tmp_path: Path) -> None:
    """An image that is given more RAM than its fence allows faults: the fence is real."""
    _, _, image = table_4_image("nrf52832")
    listing = subprocess.run(
        [toolchain.needs("arm-none-eabi-nm", "the test"), str(image.elf)], capture_output=True, text=True, check=True
    ).stdout
    symbols = {line.split()[2]: int(line.split()[0], 16) for line in listing.splitlines() if len(line.split()) == 3}
    assert symbols["_ram_end"] == 0x20000000 + 64 * KB
    # A vector table whose stack begins beyond the board's RAM: the first push behind the fence must end the machine.
    raw = bytearray(image.elf.read_bytes())
    at = raw.find((symbols["_stack_top"]).to_bytes(4, "little") + (symbols["pl_reset"] | 1).to_bytes(4, "little"))
    assert at > 0
    raw[at : at + 4] = (0x20000000 + 128 * KB).to_bytes(4, "little")
    wrong = tmp_path / "wrong.elf"
    wrong.write_bytes(raw)
    started = subprocess.run(command(wrong, f"unix:{tmp_path / 'line'}"), capture_output=True, timeout=30, check=False)
    assert started.returncode != 0


def experiment(tmp_path: Path, clients: int = 8) -> Experiment:
    x, y = series(clients * 14, classes=3)
    np.savez(tmp_path / "waves.npz", x=x, y=y, subject=np.arange(len(y)) % clients)
    return Experiment.of(
        {
            "data": {"source": str(tmp_path / "waves.npz")},
            "partition": {"kind": "subject", "valid_share": 0.2},
            "fleet": {"devices": "arduino-nano-33-ble-sense"},
            "model": {"name": "cfc", "hidden": 6, "backbone": 8, "head": 6},
            "method": {"name": "fedcfc", "recipe.batch": 4, "recipe.lr": 0.05},
            "stop": {"rounds": 3},
            "run": {"out": str(tmp_path / "runs"), "evaluate_every": 3, "checkpoint_seconds": 1e9},
        }
    )


def tasks(run: Run) -> list[tuple[Any, ...]]:
    with sqlite3.connect(run.folder / "run.db") as db:
        rows = db.execute("SELECT number, client, program, sent, outcome FROM tasks ORDER BY sent, number").fetchall()
    db.close()
    return rows


def models(run: Run) -> dict[str, dict[str, torch.Tensor]]:
    return {file.stem: load_file(file) for file in sorted((run.folder / "models").rglob("s*.safetensors"))}


def apart(one: Run, other: Run) -> float:
    ours, theirs = models(one), models(other)
    assert len(ours) > 2
    assert ours.keys() == theirs.keys()
    return max(float((ours[c][n] - theirs[c][n]).abs().max()) for c in ours for n in ours[c])


def test_the_same_experiment_simulated_and_with_three_boards(tmp_path: Path) -> None:
    """Three emulated boards and five simulated clients: the same tasks in the same order, models within 1e-5."""
    plan = experiment(tmp_path)
    simulated = drive.start(plan)
    boards = {"s00": "qemu:nano33", "s03": "qemu:stm32f303", "s06": "qemu:nrf52832"}
    mixed = drive.start(plan.with_(fleet={"boards": boards}))
    assert tasks(mixed) == tasks(simulated)
    assert len(models(mixed)) == 8
    assert apart(mixed, simulated) < 1e-5
    with sqlite3.connect(mixed.folder / "run.db") as db:
        told = db.execute("SELECT client, detail FROM events WHERE kind = 'board'").fetchall()
    db.close()
    assert len(told) == 9  # three boards, three rounds
    assert all(re.match(r"task \d+ took \d+\.\d\d s and \d+ bytes down", detail) for _, detail in told)


def test_a_killed_board_is_lost_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in the second round and started again in the third, with its flash: the run ends well, and the board's
    model is what three trained rounds of four made of it."""
    plan = experiment(tmp_path, 3).with_(stop={"rounds": 4})
    image = build(BOARDS["nrf52832"], 30_000)
    emulator = Emulator(image.elf, f"unix:{tmp_path / 'line'}", tmp_path / "flash")
    train, seen = Board.train, []

    def fragile(self: Board, task: Train, cud: bytes) -> Trained:
        seen.append(task.task)
        if len(seen) == 2:
            emulator.stop()  # power cut: after the CUD, before the answer
        return train(self, task, cud)

    monkeypatch.setattr(Board, "train", fragile)
    original = Board.connect

    def returning(self: Board) -> Any:
        if len(seen) == 2:  # somebody pressed its button
            emulator.start().wait_until_open()
        return original(self)

    monkeypatch.setattr(Board, "connect", returning)
    with emulator:
        run = drive.start(plan.with_(fleet={"boards": {"s01": emulator.address}}))
    with sqlite3.connect(run.folder / "run.db") as db:
        mine = db.execute("SELECT outcome, reason FROM tasks WHERE client = 's01' ORDER BY number").fetchall()
    db.close()
    assert [outcome for outcome, _ in mine] == ["accepted", "lost", "accepted", "accepted"]
    assert "the board does not answer" in mine[1][1]
    assert run.summary["ended"] == "4 rounds done"
    assert run.summary["lost_clients"] >= 1


def test_a_run_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    """Resumed from its checkpoint, with a board that is further on than that: the same end as without a stop."""
    plan = experiment(tmp_path, 3)
    image = build(BOARDS["nrf52832"], 30_000)
    with Emulator(image.elf, f"unix:{tmp_path / 'line'}", tmp_path / "flash") as emulator:
        boards = {"s02": emulator.address}
        whole = drive.start(plan.with_(fleet={"boards": boards}))
        part = drive.start(plan.with_(fleet={"boards": boards}, stop={"rounds": 2}, run={"name": "part"}))
        ahead = Board("s02", emulator.address)  # the board moves on behind the run's back
        assert ahead.connect().ready == 1
        ahead.train(Train(9999, 1, -1.0, 0, 4, 0), b"")
        ahead.keep(9999)
        ahead.close()
        resumed = drive.resume(part.folder, rounds=3)
    assert apart(resumed, whole) == 0.0


@pytest.mark.slow
def test_silence_is_told_from_slowness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a board trains it says so; a patience of a fraction of the task's time is enough."""
    model = model_of("cfc", (125, 6), 6, {"hidden": 32, "backbone": 32, "head": 32})
    setup = setup_of(model, methods.load("fedcfc").configure({"recipe.batch": 8, "recipe.epochs": 4}), keep="segments")
    image = build(BOARDS["nano33"], memory_needed(setup))
    x, y = series(8, steps=125, channels=6, classes=6)
    many = replace(data(8), x=torch.from_numpy(x), y=torch.from_numpy(y))
    with Emulator(image.elf, f"unix:{tmp_path / 'line'}", tmp_path / "flash") as emulator:
        board = Board("slow", emulator.address)
        board.connect()  # the emulator may take longer than PATIENCE to start
        weights = model.init(0)
        board.install(setup, *weights_as_stored(weights, list(weights)), shelf_of(model, many, None))
        monkeypatch.setattr(board, "_silence", PATIENCE)
        heard, get = [], Board._get
        monkeypatch.setattr(Board, "_get", lambda self, s: [heard.append(f.kind) or f for f in get(self, s)])
        answer = board.train(Train(0, 5, 0.01, 0, 8, 0), b"")
        board.close()
    assert answer.steps == 4
    assert answer.ticks > PATIENCE * 25_000_000  # longer than the patience, by the board's own clock
    assert heard.count(Kind.PROGRESS) >= 3
