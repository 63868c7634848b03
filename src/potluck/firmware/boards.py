"""Boards that the client can be built for: their memory maps, and what the paper measured on them."""

from __future__ import annotations

from dataclasses import dataclass

from potluck.errors import Code, unknown

KB = 1024
STACK = 2048  # bytes that an image must leave for the stack; a measurement finds about half of it used
CODE = 128 * KB  # of the flash for the program


@dataclass(frozen=True)
class Published:
    """A row of the paper's Table 4."""

    layers: str
    size_kb: float
    training_ms: float
    sram_kb: float


@dataclass(frozen=True)
class Board:
    """A part and its memory map, from its maker's manual."""

    name: str
    title: str
    device: str  # its entry in the catalogue of devices; "": it has none
    ram: int  # bytes of its largest RAM in one piece: the arena lies there
    flash: int  # bytes
    mhz: float
    port: str  # firmware/port/NAME.c drives its UART, flash and watchdog
    manual: str  # where its map is from
    table_4: Published | None = None  # None: a part the paper does not have
    ram_at: int = 0x20000000
    flash_at: int = 0
    fast: int = 0  # bytes of core-coupled memory, for the client and the stack; 0: none
    fast_at: int = 0x10000000
    code: int = CODE  # of the flash for the program; the rest is for weights and samples
    page: int = 4096  # bytes that the flash erases at a time
    unit: int = 4  # bytes that it programs at a time
    erasures: int = 10_000  # that its maker promises for a page
    float_unit: bool = True


NANO33 = Board(
    name="nano33",
    title="Arduino Nano 33 BLE Sense (nRF52840)",
    device="arduino-nano-33-ble-sense",
    ram=256 * KB,
    flash=1024 * KB,
    mhz=64.0,
    port="nrf5",
    manual="nRF52840 product specification, memory map",
    table_4=Published("2, 2, 2", 6.7, 373.13, 149.76),
)
M4EXPRESS = Board(
    name="m4express",
    title="Adafruit Feather M4 Express (ATSAMD51J19)",
    device="adafruit-m4-express",
    ram=192 * KB,
    flash=512 * KB,
    mhz=120.0,
    port="samd51",
    manual="SAM D5x/E5x data sheet, product memory mapping",
    page=8192,
    unit=16,
    table_4=Published("2, 1, 1", 4.6, 311.37, 139.88),
)
STM32F303 = Board(
    name="stm32f303",
    title="STM32F303xE",
    device="stm32f303",
    ram=64 * KB,
    flash=512 * KB,
    mhz=72.0,
    port="stm32f3",
    manual="RM0316, memory organisation: 64 kB SRAM, 16 kB CCM elsewhere",
    flash_at=0x08000000,
    fast=16 * KB,
    page=2048,
    table_4=Published("1, 1, 1", 3.7, 287.92, 78.67),
)
NRF52832 = Board(
    name="nrf52832",
    title="nRF52832, a part with 64 kB",
    device="nrf52832",
    ram=64 * KB,
    flash=512 * KB,
    mhz=64.0,
    port="nrf5",
    manual="nRF52832 product specification, memory map",
)
STM32F405 = Board(
    name="stm32f405",
    title="STM32F405xG",
    device="",
    ram=128 * KB,
    flash=1024 * KB,
    mhz=168.0,
    port="stm32f4",
    manual="RM0090, memory organisation: 128 kB SRAM, 64 kB CCM elsewhere",
    flash_at=0x08000000,
    fast=64 * KB,
    page=128 * KB,
)
MICROBIT = Board(
    name="microbit",
    title="BBC micro:bit (nRF51822, no floating-point unit)",
    device="",
    ram=16 * KB,
    flash=256 * KB,
    mhz=16.0,
    port="nrf5",
    manual="nRF51 reference manual, memory",
    code=64 * KB,
    page=1024,
    float_unit=False,
)
BOARDS = {board.name: board for board in (NANO33, M4EXPRESS, STM32F303, NRF52832, STM32F405, MICROBIT)}


def board(name: str) -> Board:
    if name not in BOARDS:
        raise unknown(Code.BOARD_ADDRESS, "--board", name, BOARDS)
    return BOARDS[name]
