"""Flash as it is: pages that are erased, units that are programmed once, power that goes in the middle of a write."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from helpers.boards import Process, data

from potluck import methods
from potluck.engines.serial.board import Board, Refused
from potluck.engines.serial.messages import Kind, Region, Train, Write
from potluck.errors import BadInput
from potluck.firmware.boards import BOARDS, wear
from potluck.firmware.client import shelf_of
from potluck.firmware.shape import setup_of, weights_as_stored
from potluck.firmware.toolchain import host_program
from potluck.models import build

MODEL = build("cfc", (12, 3), 4, {"hidden": 5, "backbone": 7, "head": 6})
WEIGHTS = MODEL.init(0)
STORED = weights_as_stored(WEIGHTS, list(WEIGHTS))
SETUP = setup_of(MODEL, methods.load("fedcfc").configure({"recipe.batch": 4}))
TOLD = re.compile(
    r"(\d+) federations, (\d+) cuts, (\d+) lost answers, (\d+) writes, (\d+) stores in (\d+) slots, "
    r"(\d+) erasures of a page, (\d+) recordings, (\d+) trainings by itself\n"
)
PARTS = {  # bytes erased at a time, bytes programmed at a time
    "nRF52840, SAMD51 by quarters": (4096, 4),
    "SAMD51": (8192, 16),
    "STM32F303": (2048, 4),
    "STM32L4": (2048, 8),
    "STM32H7": (8192, 32),
}


def power(*words: str, sanitize: bool = False, page: int = 4096, unit: int = 4) -> list[int]:
    defines = {"PL_ARENA": 8192, "PL_PAGE": page, "PL_UNIT": unit}
    program = host_program("power", sanitize=sanitize, defines=defines)
    done = subprocess.run([str(program), *words], capture_output=True, text=True, check=False, timeout=240)
    told = TOLD.fullmatch(done.stdout)
    assert told is not None, done.stdout + done.stderr[-3000:]
    return [int(number) for number in told.groups()]


@pytest.mark.parametrize("part", PARTS)
def test_a_cut_at_every_write(part: str) -> None:
    """The power goes at the first write of a federation, in the next one at its second, and so on to the last."""
    page, unit = PARTS[part]
    federations, cuts, lost, *_ = power("every", sanitize=page == 4096, page=page, unit=unit)
    assert cuts == federations - 1 > 20
    assert lost > 50


def test_a_thousand_federations_with_cuts_and_lost_answers() -> None:
    """Nothing that the board acknowledged is lost, and no unit is programmed twice between two erasures."""
    federations, cuts, lost, _, stores, slots, most, recordings, learnt = power("1000", "1")
    assert (federations, slots) == (1000, 4)
    assert 4000 + learnt <= stores <= 4000 + learnt + cuts  # a cut between a store and its answer
    assert recordings > 1000
    assert learnt > 300
    assert cuts > 1000
    assert lost > 2000
    assert most < 1.25 * stores / slots  # the ring spreads the erasures; cuts and new samples add some


def placed(process: Process, samples: int = 6) -> Board:
    board = process.board()
    board.connect()
    board.install(SETUP, *STORED, shelf_of(MODEL, data(samples), None))
    return board


@pytest.mark.parametrize(("page", "unit"), [(2048, 8), (8192, 32)])
def test_page_sizes_are_a_setting_of_the_build(tmp_path: Path, page: int, unit: int) -> None:
    process = Process(tmp_path / "flash", page=page, unit=unit)
    board = placed(process)
    board.train(Train(1, 99, -1.0, 0, 4, 0), b"")
    board.keep(1)
    board.close()
    process.kill()
    hello = process.board().connect()
    process.kill()
    assert (hello.ready, hello.kept, hello.train) == (1, 1, 6)


def test_a_page_size_that_cannot_be_does_not_compile() -> None:
    with pytest.raises(BadInput, match="PL_PAGE: must be a multiple of 32"):
        host_program("posix", defines={"PL_ARENA": 8192, "PL_PAGE": 1000})
    with pytest.raises(BadInput, match="PL_UNIT: must be 4, 8, 16 or 32"):
        host_program("posix", defines={"PL_ARENA": 8192, "PL_UNIT": 6})


def test_a_second_set_of_samples_replaces_the_first(tmp_path: Path) -> None:
    """Pages that hold old samples are erased, wherever the pieces on the line begin and end."""
    process = Process(tmp_path / "flash", sanitize=True)
    board = placed(process, 40)  # 152 bytes each: more than a page
    second = shelf_of(MODEL, data(40, seed=5), None)
    board.install(SETUP, *STORED, second)
    assert board.connect().shelf == second.crc
    process.kill()


def test_a_repeated_piece_is_answered_and_not_programmed_again(tmp_path: Path) -> None:
    """Its answer was lost. The flash refuses to program anything twice, so the board compares."""
    process = Process(tmp_path / "flash", sanitize=True)
    board = process.board()
    board.connect()
    board._exchange(Kind.SETUP, SETUP.pack())
    sample = shelf_of(MODEL, data(1), None).data
    piece = Write(Region.SHELF, 0).pack() + sample[:64]
    for _ in range(3):
        assert board._exchange(Kind.WRITE, piece) == b""
    changed = Write(Region.SHELF, 0).pack() + b"\1" + sample[1:64]
    assert board._exchange(Kind.WRITE, changed) == b""  # begins anew
    with pytest.raises(Refused, match="BAD_REGION"):  # a gap
        board._exchange(Kind.WRITE, Write(Region.SHELF, 128).pack() + sample[128:])
    with pytest.raises(Refused, match="BAD_REGION"):  # of two samples
        board._exchange(Kind.WRITE, Write(Region.SHELF, 64).pack() + sample[64:] + sample[:64])
    process.kill()


def test_weights_outlive_an_image_with_another_arena(tmp_path: Path) -> None:
    """A new image may have more or less memory for training: slots lie where they lay."""
    process = Process(tmp_path / "flash")
    board = placed(process)
    board.train(Train(7, 99, -1.0, 0, 4, 0), b"")
    board.keep(7)
    weights = board.read(Region.WEIGHTS, len(STORED[0]))
    process.kill()
    newer = Process(tmp_path / "flash", arena=30_000)
    board = newer.board()
    hello = board.connect()
    assert (hello.ready, hello.kept, hello.arena) == (1, 7, 30_000)
    assert board.read(Region.WEIGHTS, len(STORED[0])) == weights
    newer.kill()


def test_stores_go_round_the_slots(tmp_path: Path) -> None:
    process = Process(tmp_path / "flash")
    board = placed(process)
    for task in range(1, 6):
        board.train(Train(task, 99, -1.0, 0, 4, 0), b"")
        board.keep(task)
    stats = board.stats()
    process.kill()
    assert (stats.stores, stats.slots) == (6, 16)


MOST_A_DAY = 24.0  # erasures of a page, with 48 accepted tasks a day: the figure of docs/firmware/porting.md


@pytest.mark.parametrize("name", BOARDS)
def test_wear_of_a_training_day(tmp_path: Path, name: str) -> None:
    """What is printed before flashing is what the client does with this flash, and within the stated figure."""
    part = BOARDS[name]
    process = Process(tmp_path / "flash", page=part.page, unit=part.unit, flash=part.flash - part.code)
    slots = placed(process).stats().slots
    process.kill()
    said = wear(part, len(STORED[0]))
    assert said.slots == slots
    assert said.erasures == 48 / slots <= MOST_A_DAY
    if part.table_4 is not None:  # the paper's network on this part
        layers = tuple(int(word) for word in part.table_4.layers.split(","))
        model = build("cfc", (125, 6), 6, {"hidden": 32, "backbone": 32, "head": 32, "layers": layers})
        assert wear(part, 4 * sum(w.numel() for w in model.init(0).values())).erasures <= MOST_A_DAY / 2
