"""Boards that a FedCFC client can be built for: how much memory they have, and what the paper measured on them."""

from __future__ import annotations

from dataclasses import dataclass

from potluck.errors import Code, unknown

KB = 1024
STACK = 2048  # bytes a link must leave for the stack; painting finds about half of it used
CODE = 128 * KB  # of a board's flash, for the program; the rest is for weights and samples


@dataclass(frozen=True)
class Published:
    """A row of the paper's Table 4."""

    layers: str
    size_kb: float
    training_ms: float
    sram_kb: float


@dataclass(frozen=True)
class Board:
    name: str
    title: str
    device: str  # its entry in the catalogue of devices
    ram: int  # bytes
    flash: int  # bytes
    mhz: float
    table_4: Published | None  # None: a part the paper does not have


BOARDS = {
    board.name: board
    for board in (
        Board(
            "nano33", "Arduino Nano 33 BLE Sense (nRF52840)", "arduino-nano-33-ble-sense", 256 * KB, 1024 * KB, 64.0,
            Published("2, 2, 2", 6.7, 373.13, 149.76),
        ),
        Board(
            "m4express", "Adafruit Feather M4 Express (ATSAMD51)", "adafruit-m4-express", 192 * KB, 512 * KB, 120.0,
            Published("2, 1, 1", 4.6, 311.37, 139.88),
        ),
        Board(
            "stm32f303", "STM32F303xE", "stm32f303", 80 * KB, 512 * KB, 72.0, Published("1, 1, 1", 3.7, 287.92, 78.67)
        ),
        Board("nrf52832", "nRF52832, a part with 64 kB", "nrf52832", 64 * KB, 512 * KB, 64.0, None),
    )
}  # fmt: skip


def board(name: str) -> Board:
    if name not in BOARDS:
        raise unknown(Code.BOARD_ADDRESS, "--board", name, BOARDS)
    return BOARDS[name]
