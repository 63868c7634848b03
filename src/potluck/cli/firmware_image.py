"""What `potluck firmware build` prints of an image."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.text import Text

from potluck.cli import text

if TYPE_CHECKING:
    from potluck.firmware.image import Image
    from potluck.firmware.shape import Memory, Setup


def figures(image: Image, parts: Memory) -> dict[str, Any]:
    from potluck.firmware.boards import STACK, wear

    paper = image.board.table_4
    return {
        "wear": asdict(wear(image.board, parts.weights)),
        "board": image.board.name,
        "target": image.target,
        "ram": image.board.ram + image.board.fast,
        "flash_code": image.code,
        "arena": asdict(parts),
        "client": image.client,
        "stack": STACK,
        "total": image.fixed + STACK,
        "table_4": None if paper is None else asdict(paper),
    }


def _linked_for(image: Image) -> str:
    board = image.board
    if image.target == "emulator":
        return (
            "FOR THE EMULATOR ONLY: QEMU's memory map with the sizes of this board. Do not flash it; --for board links "
            "for the part."
        )
    ram = f"RAM {board.ram:,} bytes at {board.ram_at:#x}" + (
        f", {board.fast:,} at {board.fast_at:#x}" if board.fast else ""
    )
    return (
        f"FOR THE BOARD ({board.title}): program at {board.flash_at + board.loader:#x}, data at "
        f"{board.flash_at + board.code:#x}, {ram}. No board has run this image; see docs/firmware/porting.md."
    )


def show(image: Image, parts: Memory, setup: Setup) -> None:
    from potluck.firmware.boards import KB, STACK, TASKS_A_DAY, wear
    from potluck.firmware.layers import LOSS_ALONE

    table = text.sheet("RAM", ">bytes", ">kB")
    rows = {
        "weights": parts.weights,
        "gradient": parts.gradient,
        "momentum, pull" if setup.network or setup.extras & LOSS_ALONE else "CUD, LUD, direction": parts.vectors,
        "outputs and states" if setup.network else "kept states and tangents": parts.kept,
        "work space": parts.work,
        "client, frames, receive ring": image.client,
        "stack (reserved)": STACK,
    }
    total = image.fixed + STACK
    for name, value in {**rows, "total": total, f"of {image.board.title}": image.board.ram + image.board.fast}.items():
        table.add_row(name, f"{value:,}", f"{value / KB:.1f}")
    text.show(table)
    text.line(f"flash: {image.code:,} bytes of program")
    worn = wear(image.board, parts.weights)
    text.line(
        f"wear: {worn.slots} slots take the weights in turn; with {TASKS_A_DAY} tasks a day each page is erased "
        f"{worn.erasures:.1f} times a day, and {image.board.erasures:,} erasures last {worn.years:.1f} years"
    )
    style = "bold red" if image.target == "emulator" else "bold yellow"
    text.console().print(Text(_linked_for(image), style), soft_wrap=True)
    paper = image.board.table_4
    if paper is not None and not setup.network:
        layers = f"{setup.layers_f}, {setup.layers_g}, {setup.layers_h}"
        text.line(
            f"f, g, h of {layers} layers, hidden {setup.hidden}: {total / KB:.1f} kB; the paper's Table 4 lists "
            f"{paper.sram_kb} kB for {paper.layers} layers and {paper.size_kb} kB of weights."
        )
