"""Boards that the client can be built for: their memory maps, and what the paper measured on them."""

from __future__ import annotations

from dataclasses import dataclass

from potluck.errors import Code, unknown

KB = 1024
STACK = 2048  # bytes that an image must leave for the stack; a measurement finds about half of it used
CLIENT = 2688  # bytes of RAM for the client, its frames and the receive ring, rounded up
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
    loader: int = 0  # bytes at the start of its flash that are its boot loader's
    uf2: int = 0  # family of its images for a boot loader with a drive; 0: it has none
    serial: str = ""  # the protocol of its boot loader on a serial line; "": it has none
    boot2: bool = False  # its flash begins with a second stage that has a checksum


NANO33 = Board(
    name="nano33",
    title="Arduino Nano 33 BLE Sense (nRF52840)",
    device="arduino-nano-33-ble-sense",
    ram=256 * KB,
    flash=1024 * KB,
    mhz=64.0,
    port="nrf5",
    manual="nRF52840 product specification, memory map",
    loader=64 * KB,
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
    loader=16 * KB,
    uf2=0x55114460,
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
    serial="stm32",
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
    serial="stm32",
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
PICO = Board(
    name="pico",
    title="Raspberry Pi Pico (RP2040, no floating-point unit)",
    device="",
    ram=264 * KB,
    flash=2048 * KB,
    mhz=125.0,
    port="rp2040",
    manual="RP2040 data sheet, memory: six banks in one piece; flash of the Pico: W25Q16JV",
    flash_at=0x10000000,
    float_unit=False,
    erasures=100_000,
    uf2=0xE48BFF56,
    boot2=True,
)
BOARDS = {board.name: board for board in (NANO33, M4EXPRESS, STM32F303, NRF52832, STM32F405, MICROBIT, PICO)}


TASKS_A_DAY = 48  # accepted ones: one in half an hour
LEAST_SLOTS, MOST_SLOTS, HEADER = 2, 16, 288  # as in firmware/src/flash.c


@dataclass(frozen=True)
class Wear:
    """What storing the weights after each accepted task does to a board's flash."""

    slots: int  # that take the stores in turn
    erasures: float  # of each of their pages in a day
    years: float  # until the erasures that the part's maker promises are used up


def wear(board: Board, stored: int, tasks: int = TASKS_A_DAY) -> Wear:
    """For weights of so many bytes, stored after so many tasks a day: the ring takes a quarter of the data flash."""

    def pages(size: int) -> int:
        return -(-size // board.page) * board.page

    room = pages((board.flash - board.code) // 4) // pages(HEADER + stored)
    slots = min(max(room, LEAST_SLOTS), MOST_SLOTS)
    return Wear(slots, tasks / slots, board.erasures * slots / tasks / 365)


def board(name: str) -> Board:
    if name not in BOARDS:
        raise unknown(Code.BOARD_ADDRESS, "--board", name, BOARDS)
    return BOARDS[name]
