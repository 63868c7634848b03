"""`potluck firmware`: build the image of a microcontroller that trains for a client, and run it in an emulator."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from potluck.cli import flags, text
from potluck.cli.firmware_image import figures, show
from potluck.errors import BadInput, Code, unknown

if TYPE_CHECKING:
    from potluck.firmware.boards import Board
    from potluck.firmware.image import Image
    from potluck.firmware.shape import Memory, Setup

app = typer.Typer(
    no_args_is_help=True, help="Build the FedCFC client for a microcontroller, and run it under emulation."
)

BoardName = Annotated[str, typer.Option("--board", metavar="BOARD", help="see `potluck firmware boards`")]
ExperimentFile = Annotated[
    Path, typer.Option("--experiment", metavar="FILE", help="experiment whose model and method the board trains")
]
Keep = Annotated[
    str, typer.Option("--keep", help="activations to keep: all, states, fours or segments, from fast to small")
]
Weights = Annotated[
    str, typer.Option("--weights", help="store weights as float32 or int8 (default: as the experiment says)")
]
Kept = Annotated[str, typer.Option("--kept", help="store kept activations as float32 or int8")]


@app.command(epilog="Example: potluck firmware build --board nano33 --experiment experiments/fedcfc/board.toml")
def build(
    board: BoardName,
    experiment: ExperimentFile,
    target: Annotated[
        str, typer.Option("--for", metavar="TARGET", help="link for the emulator, or for the board itself")
    ] = "emulator",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="write the image: .elf, or for a board .hex, .bin or .uf2 as well"),
    ] = None,
    keep: Keep = "segments",
    weights: Weights = "",
    kept: Kept = "float32",
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="key of this board, from `potluck firmware key`")
    ] = None,
    settings: flags.Set = None,
    as_json: flags.Json = False,
) -> None:
    """Build the image for a board, and print its memory map next to the paper's Table 4.

    Without `--for board` the image is for QEMU: do not flash it. Formats for flashing are refused then. If the
    experiment does not fit, the error says by how much and what to shrink.
    """
    from potluck.firmware.boards import board as board_named
    from potluck.firmware.image import TARGETS, check_format, read_key, write_image

    if target not in TARGETS:
        raise unknown(Code.FLAG_VALUE, "--for", target, TARGETS)
    if out is not None:
        check_format(out, target)
    if key is not None and out is None:
        raise BadInput(Code.FLAG_VALUE, "--key: must come with --out, the file that gets the image with the key.")
    known, secret = board_named(board), None if key is None else read_key(key)
    setup = _setup(experiment, keep, weights, kept, settings or [])
    image, parts = _fitting(known, setup, target)
    if out is not None:
        write_image(image, out, secret)
    if as_json:
        text.as_json({**figures(image, parts), "image": str(out or image.elf)})
        return
    show(image, parts, setup)
    text.line(f"image {out or image.elf}")


@app.command(
    epilog="Example: potluck firmware run --board nano33 --experiment experiments/fedcfc/board.toml --port 7001"
)
def run(
    board: BoardName,
    experiment: ExperimentFile,
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", help="port of the board's serial line, on 127.0.0.1")
    ] = 7001,
    flash: Annotated[
        Path | None,
        typer.Option("--flash", metavar="FILE", help="file that keeps its weights and samples between starts"),
    ] = None,
    keep: Keep = "segments",
    weights: Weights = "",
    kept: Kept = "float32",
    settings: flags.Set = None,
) -> None:
    """Run the image in QEMU, with its serial line on a loopback port, until Ctrl-C.

    `potluck run FILE --set fleet.boards.CLIENT=tcp:127.0.0.1:PORT` then trains that client on the emulated board.
    """
    from potluck.firmware.boards import board as board_named
    from potluck.firmware.emulator import Emulator

    if not 0 < port < 65536:
        raise BadInput(Code.FLAG_VALUE, f"--port: must be 1 to 65535, got {port}.")
    known = board_named(board)
    image, parts = _fitting(known, _setup(experiment, keep, weights, kept, settings or []))
    address = f"tcp:127.0.0.1:{port}"
    emulator = Emulator(image.elf, address, flash)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore Ctrl-C for background jobs
    try:
        emulator.start().wait_until_open()
        text.line(f"{known.title}, emulated, {parts.total:,} bytes for training")
        text.line(f"address {address}")
        text.line("Ctrl-C stops it")
        assert emulator.process is not None
        emulator.process.wait()
        raise BadInput(Code.FIRMWARE_FAILED, "firmware: QEMU ended; the image crashed or another program stopped it.")
    except KeyboardInterrupt:
        pass
    finally:
        emulator.stop()


@app.command(epilog="Example: potluck firmware monitor serial:/dev/ttyACM0@115200 --every 5")
def monitor(
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="serial:DEVICE@BAUD, tcp:HOST:PORT or unix:PATH of the board")
    ],
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", help="look again after so many seconds; 0: once")
    ] = 0.0,
    accuracy: Annotated[
        bool, typer.Option("--accuracy", help="also let the board classify its validation samples")
    ] = False,
) -> None:
    """Show what a board says of itself: its tasks, samples, memory and flash.

    A board that trains answers too, but it cannot classify then.
    """
    import time

    from potluck.firmware.monitor import Watch

    if not 0 <= every < 1e6:
        raise BadInput(Code.FLAG_VALUE, f"--every: must be 0 or more seconds, got {every:g}.")
    board = Watch(address)
    try:
        while True:
            for line in board.state(accuracy):
                text.line(line)
            if not every:
                return
            time.sleep(every)
    except KeyboardInterrupt:
        pass
    finally:
        board.close()


@app.command(epilog="Example: potluck firmware label serial:/dev/ttyACM0@115200 2")
def label(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="of the board")],
    number: Annotated[int, typer.Argument(metavar="CLASS", help="what the last window of its sensor was", min=0)],
) -> None:
    """Tell a board what its sensor has just read. It records the window, and later trainings use it."""
    from potluck.firmware.monitor import Watch

    board = Watch(address)
    try:
        text.line(board.label(number))
    finally:
        board.close()


@app.command(epilog="Example: potluck firmware flash client.elf --board pico --to /media/me/RPI-RP2")
def flash(
    image: Annotated[Path, typer.Argument(metavar="IMAGE.elf", help="what `build --for board --out` wrote")],
    board: BoardName,
    to: Annotated[
        str, typer.Option("--to", metavar="PLACE", help="drive of its boot loader, or serial:DEVICE@BAUD of it")
    ],
) -> None:
    """Put an image onto a board by its boot loader: a drive that takes UF2 files, or an STM32's serial line.

    An image of another part or for the emulator is refused. A serial boot loader's flash is read back and compared.
    """
    from potluck.firmware import flashing
    from potluck.firmware.boards import board as board_named

    known = board_named(board)
    try:
        elf = image.read_bytes()
    except OSError as error:
        raise BadInput(Code.FLAG_VALUE, f"image: {str(image)!r} cannot be read ({error.strerror}).") from None
    if to.startswith(("serial:", "tcp:", "unix:")):
        flashing.to_loader(elf, known, to, text.line)
        text.line(f"{known.title} runs it now")
        return
    at, data = flashing.program_of(elf, known)
    said = flashing.to_drive(flashing.uf2(at, data, known.uf2), known, Path(to))
    text.line(f"{len(data):,} bytes copied to {said}; it restarts with them by itself")


@app.command(epilog="Example: potluck firmware key c0000.key")
def key(file: Annotated[Path, typer.Argument(metavar="FILE", help="where the key is written")]) -> None:
    """Make a key for one board. With it only this host can talk to the board (`build --key`, `ADDRESS?key=FILE`)."""
    from potluck.firmware.image import write_key

    write_key(file)
    text.line(f"key in {file}; build the board's image with --key {file}, and add ?key={file} to its address")


@app.command(epilog="Example: potluck firmware boards")
def boards() -> None:
    """List the boards, their memory, and what the paper measured on them."""
    from potluck.firmware.boards import BOARDS, KB

    table = text.sheet(
        "board", "", ">RAM kB", ">flash kB", ">MHz", "paper: f, g, h layers", ">ms per round", ">SRAM kB"
    )
    for one in BOARDS.values():
        paper = one.table_4
        figures = (
            ("-", "-", "-") if paper is None else (paper.layers, f"{paper.training_ms:.0f}", f"{paper.sram_kb:.1f}")
        )
        table.add_row(one.name, one.title, f"{one.ram // KB}", f"{one.flash // KB}", f"{one.mhz:g}", *figures)
    text.show(table)


def _setup(experiment: Path, keep: str, weights: str, kept: str, settings: list[str]) -> Setup:
    """What a board needs to know of an experiment."""
    from potluck import methods
    from potluck.firmware.attach import board_setup
    from potluck.firmware.shape import KEEPING
    from potluck.runs.build import config_of, model_of
    from potluck.runs.deal import federation_of
    from potluck.runs.experiment import Experiment
    from potluck.runs.needs import filled

    if keep not in KEEPING:
        raise unknown(Code.FLAG_VALUE, "--keep", keep, KEEPING)
    for flag, given in (("--weights", weights or "float32"), ("--kept", kept)):
        if given not in ("float32", "int8"):
            raise unknown(Code.FLAG_VALUE, flag, given, ("float32", "int8"))
    plan = filled(Experiment.read(experiment, settings))  # as `potluck run` does, or the image is of another network
    federation = federation_of(plan)
    config = config_of(plan, methods.load(str(plan.method["name"])))
    timed = federation.dataset.t is not None
    return board_setup(model_of(plan, federation), config, timed=timed, keep=keep, kept=kept, form=weights)


def _fitting(board: Board, setup: Setup, target: str = "emulator") -> tuple[Image, Memory]:
    from potluck.firmware.image import build as build_image
    from potluck.firmware.shape import memory

    parts = memory(setup)
    try:
        return build_image(board, parts.total, target=target), parts
    except BadInput as error:
        hints = "; ".join(_hints(board, setup)) or "no single change makes it fit: use a larger board"
        raise BadInput(Code.BOARD_MEMORY, f"{str(error).rstrip('.')}; {hints}.") from None


def _hints(board: Board, setup: Setup) -> Iterator[str]:
    """Single changes that would make it fit, the least harmful first."""
    from dataclasses import replace

    from potluck.firmware.boards import CLIENT, STACK
    from potluck.firmware.shape import KEEPING, memory_needed

    room = board.ram if board.fast else board.ram - STACK - CLIENT

    def fits(other: Setup) -> bool:
        return memory_needed(other) <= room

    if setup.network:
        return  # layers have nothing to trade: a smaller network or a larger board
    by_size = ("all", "states", "fours", "segments")
    for keep in by_size[by_size.index(KEEPING[setup.keep]) + 1 :]:
        other = replace(setup, keep=KEEPING.index(keep))
        if fits(other):
            yield f"--keep {keep} would fit ({memory_needed(other)} bytes)"
            break
    for flag, field in (("--kept", "kept"), ("--weights", "weights")):
        changed: dict[str, Any] = {field: 2}
        other = replace(setup, **changed)
        if getattr(setup, field) == 0 and fits(other):
            yield f"{flag} int8 would fit ({memory_needed(other)} bytes)"
    for share in (k / 20 for k in range(19, 0, -1)):
        sizes: dict[str, Any] = {
            name: max(1, int(getattr(setup, name) * share)) for name in ("hidden", "backbone", "head")
        }
        other = replace(setup, **sizes)
        if fits(other):
            listed = " ".join(f"--set model.{name}={value}" for name, value in sizes.items())
            yield f"{listed} would fit ({memory_needed(other)} bytes)"
            break
