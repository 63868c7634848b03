"""Instructions, cycles, milliseconds and joules of one training step on the boards of FedCFC's Table 4.

    python benchmarks/firmware.py            all boards
    python benchmarks/firmware.py --quick    the smallest one
    python benchmarks/firmware.py --orders   first-order steps beside exact ones, in instructions and cycles

A step is one sample of 125 readings of 6 channels: gradient, exact second-order terms, clipping, descent. Method:

* Instructions: QEMU with `-icount shift=0` runs one instruction per nanosecond of its own time, and the board reads its
  25 MHz timer, so a tick is 40 instructions; the figure is the same every time. `plain` is the same client with its
  inner loops as straightforward C (`-DPL_PLAIN`), same compiler, same flags, same results to the last bit.
* Cycles: a second run logs every translated block that is executed; each instruction in it is charged by a
  list of Cortex-M4 timings, not checked against the manual (loads 2, load-multiple 1 + n, taken branches 3,
  floating add and multiply 1 and one more when the next instruction needs the result, divide and square root 14),
  without wait states of the flash. The log also has the frames around the step, a few percent more than the timer
  counts; so cycles are the timer's instructions times the log's cycles per instruction. An estimate: nothing was run
  on a real board.
* Milliseconds: cycles over the board's clock. Joules: milliseconds times the catalogue's power while training.
"""

from __future__ import annotations

import argparse
import re
import socket
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from pathlib import Path

import torch

from potluck import devices, keys, methods
from potluck.engines.serial.board import Board
from potluck.engines.serial.messages import Train
from potluck.firmware.boards import BOARDS, KB, STACK
from potluck.firmware.client import shelf_of
from potluck.firmware.emulator import INSTRUCTIONS_PER_TICK, Emulator, command
from potluck.firmware.image import Image, build
from potluck.firmware.shape import memory_needed, setup_of, weights_as_stored
from potluck.fleet import Data
from potluck.models import build as model_of

CASES = [
    ("nano33", (2, 2, 2), 32, "segments"),
    ("nano33", (2, 2, 2), 32, "fours"),
    ("nano33", (2, 2, 2), 32, "states"),
    ("m4express", (2, 1, 1), 32, "segments"),
    ("m4express", (2, 1, 1), 32, "fours"),
    ("m4express", (2, 1, 1), 32, "states"),
    ("stm32f303", (1, 1, 1), 32, "segments"),
    ("stm32f303", (1, 1, 1), 32, "fours"),
    ("nrf52832", (2, 2, 2), 16, "segments"),
    ("nrf52832", (2, 2, 2), 16, "fours"),
]


COLUMNS = (
    "board", "f,g,h", "hidden", "kept", "SRAM kB", "M instructions", "plain loops", "fewer by", "M cycles",
    "per instruction", "ms", "mJ", "paper ms",
)  # fmt: skip


class Case:
    """A network on a board, and one sample for it."""

    def __init__(
        self, board: str, layers: tuple[int, int, int], hidden: int, keep: str, terms: dict[str, float] | None = None
    ) -> None:
        shape = {"hidden": hidden, "backbone": hidden, "head": hidden, "layers": layers}
        self.board = BOARDS[board]
        self.model = model_of("cfc", (125, 6), 6, shape)
        self.setup = setup_of(
            self.model, methods.load("fedcfc").configure({"recipe.batch": 1, **(terms or {})}), keep=keep
        )
        self.weights = self.model.init(0)
        x = keys.normal(keys.key("window"), (1, 125, 6))
        self.sample = Data(x, torch.tensor([2]), torch.ones(1))

    def image(self, plain: bool = False) -> Image:
        return build(self.board, memory_needed(self.setup), plain=plain)

    def step(self, address: str, before: object = None, after: object = None) -> tuple[int, int]:
        """Ticks of one step on the board at an address, and its stack."""
        board = Board(self.board.name, address, silence=600.0)
        board.connect()
        shelf = shelf_of(self.model, self.sample, None)
        ready = board.install(self.setup, *weights_as_stored(self.weights, list(self.weights)), shelf)
        cud = keys.normal(keys.key("cud"), (ready.vector,)).numpy().tobytes()
        if callable(before):
            before()
        answer = board.train(Train(0, 5, 0.01, zlib.crc32(cud), 1, 1), cud)
        if callable(after):
            after()
        stack = board.stats().stack
        board.close()
        return answer.ticks, stack


def instructions(case: Case, plain: bool, folder: Path) -> tuple[int, int]:
    with Emulator(case.image(plain).elf, f"unix:{folder / 'line'}", counted=True) as emulator:
        ticks, stack = case.step(emulator.address)
    return ticks * INSTRUCTIONS_PER_TICK, stack


def per_instruction(case: Case, counted: int, tries: int = 3) -> float:
    """Cycles of one instruction on the average, from a log that has about as many as the timer counted.

    Logging is switched on over QEMU's monitor. A loaded machine sometimes misses that: then once more.
    """
    for _ in range(tries):
        with tempfile.TemporaryDirectory() as folder:
            logged, spent = _logged(case, Path(folder))
        if counted <= logged <= 1.15 * counted:
            return spent / logged
        print(f"the log has {logged} instructions, the timer {counted}: once more", file=sys.stderr)
    raise SystemExit(f"no whole log in {tries} tries")


def _logged(case: Case, folder: Path) -> tuple[int, int]:
    log, monitor, line = folder / "log", folder / "monitor", f"unix:{folder / 'line'}"
    image = case.image()
    arguments = [*command(image.elf, line), "-d", "in_asm,nochain", "-D", str(log)]
    arguments[arguments.index("-monitor") + 1] = f"unix:{monitor},server=on,wait=off"
    process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    emulator = Emulator(image.elf, line)
    emulator.process = process  # type: ignore[assignment]

    def say(what: str) -> None:
        with socket.socket(socket.AF_UNIX) as talk:
            talk.connect(str(monitor))
            talk.recv(4096)
            talk.sendall(what.encode() + b"\n")
            while b"(qemu)" not in talk.recv(4096).rpartition(what.encode())[2]:
                pass

    try:
        emulator.wait_until_open()
        case.step(line, lambda: say("log in_asm,nochain,exec"), lambda: say("log in_asm,nochain"))
    finally:
        process.kill()
        process.wait()
    return _charged(log)


_IN = re.compile(r"0x([0-9a-f]+):\s+([0-9a-f]{4}(?: ?[0-9a-f]{4})?)\s+(\S+)\s*(.*)")
_EXEC = re.compile(r"Trace \d+: \S+ \[[0-9a-f]+/([0-9a-f]+)/")


def _charged(log: Path) -> tuple[int, int]:
    blocks: dict[int, tuple[int, int, bool]] = {}  # first address -> instructions, cycles, ends in a conditional branch
    after: dict[int, int] = {}  # the address behind a block
    fresh: list[tuple[int, int, str, str]] = []
    executed: Counter[int] = Counter()
    taken = 0
    last = -1
    with log.open(errors="replace") as lines:
        for text in lines:
            if text.startswith("Trace"):
                found = _EXEC.match(text)
                if found is None:
                    continue
                at = int(found[1], 16)
                executed[at] += 1
                if last in blocks and blocks[last][2] and after[last] != at:
                    taken += 1
                last = at
            elif text.startswith("0x"):
                told = _IN.match(text)
                if told is not None:
                    width = 4 if len(told[2].replace(" ", "")) > 4 else 2
                    fresh.append((int(told[1], 16), width, told[3], told[4]))
            elif fresh and not text.strip():
                blocks[fresh[0][0]] = (len(fresh), *_cycles_of(fresh))
                after[fresh[0][0]] = fresh[-1][0] + fresh[-1][1]
                fresh = []
    unknown = sum(count for at, count in executed.items() if at not in blocks)
    if unknown:
        raise SystemExit(f"{unknown} executed blocks were not in the log")
    count = sum(blocks[at][0] * n for at, n in executed.items())
    return count, sum(blocks[at][1] * n for at, n in executed.items()) + 2 * taken


_ONE_REGISTER = re.compile(r"[sdr]\d+")


def _registers(operands: str) -> int:
    """How many a list such as {s0, s1} or {r4, r5, pc} names; a double counts twice."""
    inside = operands[operands.find("{") + 1 : operands.find("}")]
    count = 0
    for part in inside.split(","):
        ends = part.strip().split("-")
        wide = 2 if ends[0].startswith("d") else 1
        count += wide * (1 if len(ends) == 1 else int(ends[1][1:]) - int(ends[0][1:]) + 1)
    return count


def _cycles_of(block: list[tuple[int, int, str, str]]) -> tuple[int, bool]:
    total, conditional = 0, False
    for i, (_, _, name, operands) in enumerate(block):
        root = name.split(".")[0]
        if root.startswith(("vldm", "vstm", "vpush", "vpop", "ldm", "stm", "push", "pop")):
            total += 1 + _registers(operands) + (3 if "pc" in operands else 0)
        elif root.startswith(("vdiv", "vsqrt")):
            total += 14
        elif root.startswith(("vmla", "vmls", "vfma")):
            total += 3
        elif root.startswith(("vldr", "vstr", "ldr", "str")):
            total += 2 + (3 if operands.startswith("pc") else 0)
        elif root.startswith(("udiv", "sdiv")):
            total += 12
        elif root in ("b", "b.w", "bl", "blx", "bx", "tbb", "tbh"):
            total += 3
        elif re.fullmatch(r"(b(eq|ne|cs|hs|cc|lo|mi|pl|vs|vc|hi|ls|ge|lt|gt|le)|cbz|cbnz)", root):
            total += 1  # and two more when taken
            conditional = i == len(block) - 1
        else:
            total += 1
        if root in ("vadd", "vsub", "vmul", "vcvt") and i + 1 < len(block):
            result = operands.split(",")[0].strip()
            sources = block[i + 1][3].split(",", 1)[-1]
            total += result in _ONE_REGISTER.findall(sources)
    return total, conditional


FIRST_ORDER = {"terms.lambda_d": 0.0, "terms.lambda_m": 0.0, "terms.lambda_a": 0.0}
ORDERS = (
    "board", "f,g,h", "kept", "first order, M instructions", "exact", "factor", "first order, M cycles",
    "paper's ms x MHz",
)  # fmt: skip


def orders() -> None:
    """A step without second-order terms, as the paper's code trains, beside the exact one."""
    print("| " + " | ".join(ORDERS) + " |")
    print("|---" * len(ORDERS) + "|")
    for board, layers, hidden, keep in CASES:
        if BOARDS[board].table_4 is None:
            continue
        counts = []
        for terms in (FIRST_ORDER, None):
            with tempfile.TemporaryDirectory() as folder:
                counts.append(instructions(Case(board, layers, hidden, keep, terms), False, Path(folder))[0])
        spent = counts[0] * per_instruction(Case(board, layers, hidden, keep, FIRST_ORDER), counts[0])
        paper = BOARDS[board].table_4
        most = "-" if paper is None else f"{paper.training_ms * BOARDS[board].mhz / 1e3:.1f}"
        told = [f"{counts[0] / 1e6:.2f}", f"{counts[1] / 1e6:.2f}", f"{counts[1] / counts[0]:.2f}"]
        told += [f"{spent / 1e6:.1f}", most]
        print("| " + " | ".join((board, ",".join(map(str, layers)), keep, *told)) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the smallest board only")
    parser.add_argument("--orders", action="store_true", help="first-order steps beside exact ones")
    given = parser.parse_args()
    if given.orders:
        orders()
        return
    chosen = CASES[-2:] if given.quick else CASES
    print("| " + " | ".join(COLUMNS) + " |")
    print("|---" * len(COLUMNS) + "|")
    for board, layers, hidden, keep in chosen:
        case = Case(board, layers, hidden, keep)
        with tempfile.TemporaryDirectory() as folder:
            fast, stack = instructions(case, False, Path(folder))
        with tempfile.TemporaryDirectory() as folder:
            plain, _ = instructions(case, True, Path(folder))
        each = per_instruction(case, fast)
        spent = fast * each
        seconds = spent / (case.board.mhz * 1e6)
        joules = seconds * devices.device(case.board.device).active_watts
        paper = "-" if case.board.table_4 is None else f"{case.board.table_4.training_ms:.0f}"
        sram = (case.image().fixed + stack) / KB
        figures = (
            board, ",".join(map(str, layers)), str(hidden), keep, f"{sram:.1f}", f"{fast / 1e6:.2f}",
            f"{plain / 1e6:.2f}", f"{plain / fast:.2f}", f"{spent / 1e6:.1f}", f"{each:.2f}",
            f"{1e3 * seconds:.0f}", f"{1e3 * joules:.1f}", paper,
        )  # fmt: skip
        print("| " + " | ".join(figures) + " |", flush=True)
    print(f"\nSRAM with the painted stack; a link must leave {STACK} bytes for it.")


if __name__ == "__main__":
    main()
