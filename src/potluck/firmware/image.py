"""A board's image: compiled and linked for its memory, with the sizes of its parts."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from potluck.errors import BadInput, Code
from potluck.firmware import toolchain
from potluck.firmware.boards import CODE, KB, STACK, Board

# Bytes of the stack under emulation, rounded up; `potluck firmware run` reports the true figure.
EMULATED_STACK = 1024


@dataclass(frozen=True)
class Image:
    """An ELF file, and the bytes of its parts."""

    elf: Path
    board: Board
    arena: int
    code: int  # program and constants, in flash
    fixed: int  # .data and .bss, the arena among them

    @property
    def client(self) -> int:
        """RAM outside the arena: the client, its frames, the receive ring."""
        return self.fixed - self.arena

    @property
    def left(self) -> int:
        """RAM that is left for the stack."""
        return self.board.ram - self.fixed


def build(board: Board, arena: int, *, plain: bool = False) -> Image:
    """Build the image with an arena of so many bytes; `plain` uses the simple inner loops, for comparison."""
    arena = -(-arena // 8) * 8
    if arena + STACK > board.ram:
        raise BadInput(Code.BOARD_MEMORY, _too_large(board, arena, 0))
    template = (toolchain.sources() / "port" / "board.ld.in").read_text()
    values = {
        "CODE_BYTES": CODE,
        "CODE": "0x00000000",
        "RAM_BYTES": board.ram,
        "STACK": STACK,
        "DATA": "0x21000000",
    }
    for name, value in values.items():
        template = template.replace(f"@{name}@", str(value))
    names = [*(f"src/{name}.c" for name in toolchain.CLIENT), "port/startup.c", "port/mps2.c", "port/main.c"]
    flags = [*toolchain.COMMON, *toolchain.BOARD, f"-DPL_ARENA={arena}", f"-DPL_FLASH={board.flash - CODE}"]
    flags += [f'-DPL_BOARD="{board.name}"', "-nostdlib", "-nostartfiles", "-Wl,--gc-sections"]
    flags += ["-DPL_PLAIN"] if plain else []
    try:
        elf = toolchain.compiled(toolchain.arm_compiler(), names, flags, ("-lgcc",), template)
    except BadInput as error:
        if "overflowed" in str(error) or "ASSERT" in str(error):
            raise BadInput(Code.BOARD_MEMORY, _too_large(board, arena, 2 * KB)) from None
        raise
    text, data, bss = _sizes(elf)
    return Image(elf, board, arena, text + data, data + bss)


def _too_large(board: Board, arena: int, client: int) -> str:
    rest = f", {client} for the client" if client else ""
    return f"board: {board.name} has {board.ram} bytes of RAM; training takes {arena}{rest} and {STACK} for the stack."


def _sizes(elf: Path) -> tuple[int, int, int]:
    size = toolchain.needs("arm-none-eabi-size", "an image")
    line = subprocess.run([size, str(elf)], capture_output=True, text=True, check=True).stdout.splitlines()[1]
    text, data, bss = (int(word) for word in line.split()[:3])
    return text, data, bss
