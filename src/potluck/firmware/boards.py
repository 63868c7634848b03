"""Boards that a FedCFC client can be built for: their memory, and what the paper measured on them."""

from __future__ import annotations

from dataclasses import dataclass

from potluck.errors import Code, unknown

KB = 1024
STACK = 2048  # bytes that an image must leave for the stack; a measurement finds about half of it used
CODE = 128 * KB  # of the flash for the program; the rest is for weights and samples


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


NANO33 = Board(
    name="nano33",
    title="Arduino Nano 33 BLE Sense (nRF52840)",
    device="arduino-nano-33-ble-sense",
    ram=256 * KB,
    flash=1024 * KB,
    mhz=64.0,
    table_4=Published("2, 2, 2", 6.7, 373.13, 149.76),
)
M4EXPRESS = Board(
    name="m4express",
    title="Adafruit Feather M4 Express (ATSAMD51)",
    device="adafruit-m4-express",
    ram=192 * KB,
    flash=512 * KB,
    mhz=120.0,
    table_4=Published("2, 1, 1", 4.6, 311.37, 139.88),
)
STM32F303 = Board(
    name="stm32f303",
    title="STM32F303xE",
    device="stm32f303",
    ram=80 * KB,
    flash=512 * KB,
    mhz=72.0,
    table_4=Published("1, 1, 1", 3.7, 287.92, 78.67),
)
NRF52832 = Board(
    name="nrf52832",
    title="nRF52832, a part with 64 kB",
    device="nrf52832",
    ram=64 * KB,
    flash=512 * KB,
    mhz=64.0,
    table_4=None,
)
BOARDS = {board.name: board for board in (NANO33, M4EXPRESS, STM32F303, NRF52832)}


def board(name: str) -> Board:
    if name not in BOARDS:
        raise unknown(Code.BOARD_ADDRESS, "--board", name, BOARDS)
    return BOARDS[name]
