"""Images for the parts themselves: linked by the maps of their manuals, and run where QEMU has such a machine."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.boards import data, emulation

from potluck import methods
from potluck.engines.serial.board import Board
from potluck.engines.serial.link import Gone, open_line
from potluck.engines.serial.messages import Region, Train
from potluck.errors import BadInput
from potluck.firmware import toolchain
from potluck.firmware.boards import BOARDS, CLIENT, KB, STACK
from potluck.firmware.client import shelf_of
from potluck.firmware.elf import segments
from potluck.firmware.emulator import _end_with_parent
from potluck.firmware.image import build
from potluck.firmware.shape import memory_needed, setup_of, weights_as_stored
from potluck.models import build as model_of

MISSING = emulation()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


def symbols(elf: Path) -> dict[str, int]:
    nm = toolchain.needs("arm-none-eabi-nm", "the test")
    listing = subprocess.run([nm, str(elf)], capture_output=True, text=True, check=True).stdout
    return {line.split()[2]: int(line.split()[0], 16) for line in listing.splitlines() if len(line.split()) == 3}


@pytest.mark.parametrize("name", BOARDS)
def test_everything_lies_in_memory_that_the_part_has(name: str) -> None:
    board = BOARDS[name]
    image = build(board, 6000, target="board")
    found = symbols(image.elf)
    ram = range(board.ram_at, board.ram_at + board.ram + 1)
    fast = range(board.fast_at, board.fast_at + board.fast + 1) if board.fast else ram
    assert found["_arena"] in ram
    assert found["_earena"] in ram
    for symbol in ("_data", "_ebss", "_stack_top"):
        assert found[symbol] in fast, symbol
    assert found["_stack_top"] - found["_ebss"] == image.left >= STACK
    assert found["pl_reset"] & ~1 in range(board.flash_at + board.loader, board.flash_at + board.code)
    assert min(part.at for part in segments(image.elf.read_bytes())) == board.flash_at + board.loader  # which stays
    assert image.code <= board.code - board.loader
    assert image.client <= CLIENT  # what hints and `make firmware` count with
    assert (board.flash - board.code) % board.page == 0  # data begin and end with a page
    assert board.code % board.page == 0


def test_an_stm32f303_has_64_kb_in_one_piece() -> None:
    """The paper's 80 kB are two memories. The arena has the larger one; client and stack have the other."""
    board = BOARDS["stm32f303"]
    assert build(board, 64 * KB, target="board").left > 12 * KB
    for target in ("board", "emulator"):
        with pytest.raises(BadInput, match="65536 bytes of RAM; in one piece"):
            build(board, 64 * KB + 8, target=target)


@contextmanager
def machine(kind: str, elf: Path, line: Path) -> Iterator[Board]:
    qemu = toolchain.needs("qemu-system-arm", "the test")
    words = [qemu, "-M", kind, "-display", "none", "-monitor", "none", "-kernel", str(elf)]
    child = subprocess.Popen(
        [*words, "-serial", f"unix:{line},server=on,wait=off"], stderr=subprocess.DEVNULL, preexec_fn=_end_with_parent
    )
    try:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:  # the file is there before anybody listens
            with suppress(Gone):
                open_line(f"unix:{line}", 0.5).close()
                break
            time.sleep(0.02)
        board = Board(kind, f"unix:{line}", silence=60.0)
        yield board
        board.close()
    finally:
        child.kill()
        child.wait()


def test_the_nrf5_port_trains_and_keeps_on_its_own_flash_controller(tmp_path: Path) -> None:
    """QEMU has an nRF51 with its UART and NVMC, the same registers as an nRF52's. Cortex-M0: floats by software."""
    model = model_of("cfc", (6, 2), 3, {"hidden": 3, "backbone": 3, "head": 3})
    setup = setup_of(model, methods.load("fedcfc").configure({"recipe.batch": 2}))
    image = build(BOARDS["microbit"], memory_needed(setup), target="board")
    weights = model.init(0)
    shelf = shelf_of(model, data(4, steps=6, channels=2, classes=3), None)
    with machine("microbit", image.elf, tmp_path / "line") as board:
        assert board.connect().board == "microbit"
        board.install(setup, *weights_as_stored(weights, list(weights)), shelf)
        board.install(setup, *weights_as_stored(weights, list(weights)), replace(shelf, data=shelf.data))
        before = board.read(Region.WEIGHTS, 12)
        answer = board.train(Train(1, 5, -1.0, 0, 2, 0), b"")
        board.keep(1)
        assert answer.steps == 2
        assert board.read(Region.WEIGHTS, 12) != before
        assert board.connect().kept == 1
        assert board.stats().stores == 3


def test_the_stm32f4_port_answers(tmp_path: Path) -> None:
    """QEMU's STM32F405 has the USART; it has no flash controller and no core-coupled memory, which is left out here."""
    image = build(replace(BOARDS["stm32f405"], fast=0), 20_000, target="board")
    with machine("netduinoplus2", image.elf, tmp_path / "line") as board:
        hello = board.connect()
        assert (hello.board, hello.flash) == ("stm32f405", 896 * KB)


def test_what_the_emulated_machine_is_not_is_refused() -> None:
    with pytest.raises(BadInput, match="must be built for the board"):
        build(BOARDS["microbit"], 4000)
