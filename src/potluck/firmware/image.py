"""A board's image: compiled and linked for its memory, with the sizes of its parts."""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from potluck.engines.serial.seal import read_key as read_key
from potluck.engines.serial.seal import write_key as write_key
from potluck.errors import BadInput, Code, must_be
from potluck.files import write_bytes
from potluck.firmware import toolchain
from potluck.firmware.boards import CLIENT, KB, STACK, Board
from potluck.firmware.elf import segments, with_boot_checksum
from potluck.firmware.flashing import program_of, uf2

TARGETS = ("emulator", "board")
FENCED_RAM = 0x01000000  # a RAM of 16 kB that the emulated machine has apart from its other RAM


@dataclass(frozen=True)
class Image:
    """An ELF file, and the bytes of its parts."""

    elf: Path
    board: Board
    arena: int
    code: int  # program and constants, in flash
    fixed: int  # .data and .bss, the arena among them
    target: str = "emulator"

    @property
    def client(self) -> int:
        """RAM outside the arena: the client, its frames, the receive ring."""
        return self.fixed - self.arena

    @property
    def left(self) -> int:
        """RAM that is left for the stack."""
        return self.board.fast - self.client if self.board.fast else self.board.ram - self.fixed


def build(board: Board, arena: int, *, plain: bool = False, target: str = "emulator") -> Image:
    """Build the image with an arena of so many bytes.

    `emulator` links it for QEMU's machine with this board's sizes, `board` for the part itself. `plain` uses the simple
    inner loops, for comparison.
    """
    arena = -(-arena // 8) * 8
    if arena + (0 if board.fast else STACK) > board.ram:
        raise BadInput(Code.BOARD_MEMORY, _too_large(board, arena, 0))
    emulated = target == "emulator"
    if emulated and not board.float_unit:
        raise BadInput(
            Code.BOARD_ADDRESS,
            f"--for: {board.name} must be built for the board; the emulated machine has another core.",
        )
    names = [*(f"src/{name}.c" for name in toolchain.CLIENT), "port/startup.c"]
    names += [f"port/{'mps2' if emulated else board.port}.c", "port/main.c"]
    flags = [*toolchain.COMMON, *(toolchain.BOARD if board.float_unit else toolchain.SMALL)]
    flags += [f"-DPL_ARENA={arena}", f"-DPL_FLASH={board.flash - board.code}", f'-DPL_BOARD="{board.name}"']
    flags += [f"-DPL_PAGE={board.page}", f"-DPL_UNIT={board.unit}"]
    flags += (
        ["-DPL_FENCE"]
        if emulated
        else [f"-DPL_DATA={board.flash_at + board.code:#x}u", f"-DPL_HZ={board.mhz * 1e6:.0f}u"]
    )
    flags += ["-nostdlib", "-nostartfiles", "-Wl,--gc-sections", *(["-DPL_PLAIN"] if plain else [])]
    try:
        elf = toolchain.compiled(toolchain.arm_compiler(), names, flags, ("-lgcc",), linker_script(board, target))
    except BadInput as error:
        if "overflowed" in str(error) or "ASSERT" in str(error):
            raise BadInput(Code.BOARD_MEMORY, _too_large(board, arena, CLIENT)) from None
        raise
    if board.boot2 and not emulated:
        whole = elf.with_name(elf.name + "-checked")
        if not whole.exists():
            write_bytes(whole, with_boot_checksum(elf.read_bytes()))
        elf = whole
    return Image(elf, board, arena, *_sizes(elf), target)


FLASHED = {".hex": "ihex", ".bin": "binary", ".uf2": ""}  # what tools for flashing take, and its name for objcopy


def check_format(path: Path, target: str) -> None:
    """Raise BadInput for a file format that this image must not or cannot have."""
    if path.suffix == ".elf":
        return
    if path.suffix not in FLASHED:
        raise must_be(Code.FLAG_VALUE, "--out", "a file ending in .elf, .hex, .bin or .uf2", str(path))
    if target == "emulator":
        raise BadInput(
            Code.FLAG_VALUE,
            f"--out: {path.suffix} is for flashing, and this image is for the emulator. Link for the part with "
            "--for board, or write an .elf file.",
        )


KEY_MARK = b"pl-key-slot-0001"  # firmware/port/key.h


def keyed(elf: bytes, key: bytes) -> bytes:
    """An image with a board's key in its place."""
    at = elf.find(KEY_MARK) + len(KEY_MARK)
    assert elf.count(KEY_MARK) == 1
    return elf[:at] + key + elf[at + len(key) :]


def write_image(image: Image, path: Path, key: bytes | None = None) -> None:
    """Write the image as an ELF file or, for a board, in a format for flashing; with a key, for its owner's eyes."""
    check_format(path, image.target)
    try:
        with tempfile.TemporaryDirectory() as folder:
            elf, made = Path(folder) / "image.elf", Path(folder) / path.name
            elf.write_bytes(image.elf.read_bytes() if key is None else keyed(image.elf.read_bytes(), key))
            if path.suffix == ".elf":
                made = elf
            elif path.suffix == ".uf2":
                made.write_bytes(uf2(*program_of(elf.read_bytes(), image.board), image.board.uf2))
            else:
                tool = toolchain.needs("arm-none-eabi-objcopy", "an image for flashing")
                words = [tool, "-O", FLASHED[path.suffix], str(elf), str(made)]
                subprocess.run(words, capture_output=True, text=True, check=True)
            with os.fdopen(
                os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666 if key is None else 0o600), "wb"
            ) as to:
                to.write(made.read_bytes())
    except OSError as error:
        raise BadInput(Code.OUTPUT_PLACE, f"--out: {str(path)!r} cannot be written ({error.strerror}).") from None
    except subprocess.CalledProcessError as error:
        raise BadInput(Code.FIRMWARE_FAILED, f"--out: objcopy failed ({error.stderr.strip()}).") from None


def linker_script(board: Board, target: str) -> str:
    """The linker script: the part's map, or the emulated machine's with the part's sizes."""
    emulated = target == "emulator"
    place, room = (FENCED_RAM, min(board.fast, 16 * KB)) if emulated else (board.fast_at, board.fast)
    fast = f"FAST (rwx) : ORIGIN = {place:#x}, LENGTH = {room}"
    values = {
        "CODE_BYTES": board.code - (0 if emulated else board.loader),
        "CODE": hex(0 if emulated else board.flash_at + board.loader),
        "RAM_BYTES": board.ram,
        "RAM": hex(board.ram_at),
        "STACK": STACK,
        "FAST": fast if board.fast else "",
    }
    text = (toolchain.sources() / "port" / "board.ld.in").read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text if board.fast else text.replace("SECTIONS {", 'REGION_ALIAS("FAST", RAM)\nSECTIONS {', 1)


def _too_large(board: Board, arena: int, client: int) -> str:
    rest = f", {client} for the client" if client else ""
    where = "in one piece; " if board.fast else ""
    stack = "" if board.fast else f" and {STACK} for the stack"
    return f"board: {board.name} has {board.ram} bytes of RAM; {where}training takes {arena}{rest}{stack}."


def _sizes(elf: Path) -> tuple[int, int]:
    """Bytes of flash, and bytes of RAM without the stack, by the linker script's own names."""
    nm = toolchain.needs("arm-none-eabi-nm", "an image")
    listing = subprocess.run([nm, str(elf)], capture_output=True, text=True, check=True).stdout
    places = {words[2]: int(words[0], 16) for line in listing.splitlines() if len(words := line.split()) == 3}
    fixed = places["_earena"] - places["_arena"] + places["_ebss"] - places["_data"]
    return sum(len(part.data) for part in segments(elf.read_bytes())), fixed
