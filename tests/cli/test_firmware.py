"""`potluck firmware`: the memory map, what does not fit and why, and a board that answers on its port."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.boards import data, emulation, series
from typer.testing import CliRunner

from potluck.cli import app
from potluck.engines.serial.board import Board
from potluck.engines.serial.link import open_line
from potluck.errors import BadInput
from potluck.firmware.client import shelf_of
from potluck.firmware.fit import _flat
from potluck.firmware.layers import layered_setup
from potluck.firmware.toolchain import host_program
from potluck.models import build
from potluck.runs import drive, needs
from potluck.runs.experiment import Experiment

MISSING = emulation()
needs_toolchain = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
RUNNER = CliRunner()


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    x, y = series(60, classes=3)
    np.savez(tmp_path / "waves.npz", x=x, y=y, subject=np.arange(len(y)) % 4)
    file = tmp_path / "plan.toml"
    file.write_text(
        f'[data]\nsource = "{tmp_path / "waves.npz"}"\n[partition]\nkind = "subject"\n'
        '[model]\nname = "cfc"\nhidden = 6\nbackbone = 8\nhead = 6\n[method]\nname = "fedcfc"\nrecipe.batch = 4\n'
    )
    return file


@needs_toolchain
def test_the_image_is_of_the_network_that_the_run_trains(plan: Path, tmp_path: Path) -> None:
    """A run fills in what fedcfc needs: its network and batches. So does the image."""
    bare, whole = tmp_path / "bare.toml", tmp_path / "whole.toml"
    bare.write_text(f'[data]\nsource = "{tmp_path / "waves.npz"}"\n[method]\nname = "fedcfc"\n')
    whole.write_text(needs.filled(Experiment.read(bare)).toml())
    assert "hidden" in whole.read_text()
    maps = []
    for file in (bare, whole):
        done = RUNNER.invoke(app, ["firmware", "build", "--board", "nano33", "--experiment", str(file), "--json"])
        assert done.exit_code == 0, done.output
        maps.append(json.loads(done.stdout)["arena"])
    assert maps[0] == maps[1]


@needs_toolchain
def test_build_prints_a_map_that_adds_up(plan: Path, tmp_path: Path) -> None:
    out = tmp_path / "image.elf"
    told = ["firmware", "build", "--board", "stm32f303", "--experiment", str(plan), "--out", str(out), "--json"]
    done = RUNNER.invoke(app, told)
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    assert figures["total"] == sum(figures["arena"].values()) + figures["client"] + figures["stack"]
    assert figures["total"] < figures["ram"] == 80 * 1024
    assert figures["table_4"]["sram_kb"] == 78.67
    assert out.read_bytes()[:4] == b"\x7fELF"
    shown = RUNNER.invoke(app, told[:-1])
    assert "the paper's Table 4 lists 78.67 kB" in shown.stdout


@pytest.mark.parametrize("name", ["nano.hex", "nano.bin"])
def test_an_image_for_the_emulator_has_no_format_for_flashing(plan: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    done = RUNNER.invoke(app, ["firmware", "build", "--board", "nano33", "--experiment", str(plan), "--out", str(out)])
    assert done.exit_code == 2
    assert "is for flashing, and this image is for the emulator" in done.stderr
    assert not out.exists()


@pytest.mark.parametrize(
    ("settings", "got"),
    [
        (["task.name=regression"], "the task regression"),
        (["task.name=ordinal"], "the task ordinal"),
        (["task.balance=true"], "task.balance"),
        (["task.labels=0.5"], "task.labels below 1"),
    ],
)
def test_a_task_that_a_board_cannot_train_is_refused(plan: Path, settings: list[str], got: str) -> None:
    """No image is built for it: the board would train classes all the same."""
    command = ["firmware", "build", "--board", "nano33", "--experiment", str(plan)]
    done = RUNNER.invoke(app, [*command, *(part for one in settings for part in ("--set", one))])
    assert done.exit_code == 2
    said = " ".join(done.output.split())
    assert (
        f"a board learns plain classes by their cross-entropy, all rows labelled and of one weight, got {got}." in said
    )


def test_an_unknown_format_is_refused_before_anything_is_built(plan: Path) -> None:
    done = RUNNER.invoke(app, ["firmware", "build", "--board", "nano33", "--experiment", str(plan), "--out", "a.s19"])
    assert done.exit_code == 2
    assert "a file ending in .elf, .hex, .bin or .uf2, got 'a.s19'" in done.stderr


@needs_toolchain
def test_the_output_says_what_the_image_is_for(plan: Path, tmp_path: Path) -> None:
    build = ["firmware", "build", "--board", "nano33", "--experiment", str(plan)]
    emulated = RUNNER.invoke(app, [*build, "--out", str(tmp_path / "nano.elf")])
    assert "FOR THE EMULATOR ONLY" in emulated.stdout
    real = RUNNER.invoke(app, [*build, "--for", "board", "--out", str(tmp_path / "nano.hex")])
    assert real.exit_code == 0, real.output
    assert "FOR THE BOARD (" in real.stdout
    assert "No board has run this image" in real.stdout
    assert (tmp_path / "nano.hex").read_text().startswith(":")  # Intel HEX


@needs_toolchain
def test_what_does_not_fit_is_refused_with_what_would(plan: Path) -> None:
    told = ["firmware", "build", "--board", "nrf52832", "--experiment", str(plan), "--keep", "all"]
    large = [f"--set=model.{name}=24" for name in ("hidden", "backbone", "head")]
    done = RUNNER.invoke(app, [*told, *large])
    assert done.exit_code == 2
    assert "nrf52832 has 65536 bytes of RAM; training takes" in done.stderr
    assert re.search(r"--keep (states|segments) would fit \(\d+ bytes\)", done.stderr)
    assert "--set model.hidden=" in done.stderr


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--board", "nano34"], "--board: 'nano34' is not known, did you mean 'nano33'?"),
        (["--board", "nano33", "--keep", "some"], "--keep"),
        (["--board", "nano33", "--weights", "float16"], "--weights"),
        (["--board", "nano33", "--set", "method.variant=favg"], "method.variant"),
        (["--board", "nano33", "--set", "model.name=gru"], 'model.name: must be "cfc" on boards'),
    ],
)
def test_bad_input_is_one_sentence(plan: Path, flags: list[str], said: str) -> None:
    if "model.name=gru" in flags:
        plan.write_text(plan.read_text().replace("backbone = 8\nhead = 6\n", ""))
    done = RUNNER.invoke(app, ["firmware", "build", "--experiment", str(plan), *flags])
    assert done.exit_code == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@needs_toolchain
def test_run_listens_until_it_is_stopped(plan: Path, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "potluck.cli", "firmware", "run", "--board", "nrf52832", "--experiment", str(plan),
         "--port", str(port), "--flash", str(tmp_path / "flash.bin")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        assert lines[1] == f"address tcp:127.0.0.1:{port}\n"
        board = Board("here", f"tcp:127.0.0.1:{port}")
        assert board.connect().board == "nrf52832"
        board.close()
        process.send_signal(signal.SIGINT)
        _, trouble = process.communicate(timeout=60)
        assert process.returncode == 0, trouble
    finally:
        process.kill()
        process.communicate()


def test_boards_are_listed() -> None:
    done = RUNNER.invoke(app, ["firmware", "boards"])
    assert done.exit_code == 0
    for word in ("nano33", "m4express", "stm32f303", "nrf52832", "373", "149.8"):
        assert word in done.stdout


def test_a_board_for_nobody_is_refused(plan: Path, tmp_path: Path) -> None:
    runs = f"run.out={tmp_path / 'runs'}"
    for setting, said in (
        ("fleet.boards.s99=tcp:127.0.0.1:7001", "fleet.boards: client: 's99' is not known"),
        ("fleet.boards.s00=telnet:x", "an address must be tcp:HOST:PORT"),
        ("fleet.boards.s00=qemu:nano34", "nano34"),
    ):
        with pytest.raises(BadInput, match=said):
            drive.start(Experiment.read(plan, [setting, runs]))
    assert not (tmp_path / "runs").exists()


def test_a_board_says_how_it_is(tmp_path: Path) -> None:
    """`monitor` on a board behind a terminal device: empty at first, then set up, with its accuracy."""
    ours, theirs = os.openpty()
    address = f"serial:{os.ttyname(theirs)}@115200"
    line = open_line(address)  # raw mode before anybody writes
    program = host_program("posix", defines={"PL_ARENA": 30_000})
    child = subprocess.Popen([str(program), str(tmp_path / "flash")], stdin=ours, stdout=ours)
    try:
        empty = RUNNER.invoke(app, ["firmware", "monitor", address])
        assert "posix, protocol 3, not set up" in empty.stdout
        model = build("mlp", (12, 3), 4, {"hidden": (5,)})
        board = Board("b", lambda: line)
        board.connect()
        shelf = shelf_of(model, data(6), data(3, seed=1))
        board.install(layered_setup(model), _flat(model.init(0), list(model.init(0))), b"", shelf)
        told = RUNNER.invoke(app, ["firmware", "monitor", address, "--accuracy"]).stdout
        assert "posix, protocol 3, ready" in told
        assert "6 to train on, 3 for validation" in told
        assert "1 stores in 16 slots" in told
        assert re.search(r"validation: \d of 3 right", told)
    finally:
        child.kill()
        child.wait()
        line.close()
        os.close(ours)
        os.close(theirs)
    wrong = RUNNER.invoke(app, ["firmware", "monitor", address, "--every", "-1"])
    assert wrong.exit_code == 2
    assert "--every: must be 0 or more seconds" in wrong.stderr
