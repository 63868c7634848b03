"""How long Potluck takes to answer and to begin: `--help`, and a run of a data set that is on this machine.

    python benchmarks/startup.py [--repeat 10] [--data uci_har] [--model mlp]

Every start is a process of its own, measured from outside in wall time. A run has begun its first round when its
database holds the evaluation of the untrained models, and has done it when it holds the first step. `first round` also
reads the compiled kernels from the disk (extra `fast`). Bytecode is written before the first measurement. The last line
is the processor time until a run begins its first round, for a machine that others use too.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

START = [sys.executable, "-m", "potluck.cli"]
MARKS = ("begins", "first round", "ends", "processor time")


def quiet(*command: str) -> float:
    """Seconds until a command has ended."""
    begin = time.perf_counter()
    subprocess.run(command, env=environment(), check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def started(data: str, model: str) -> tuple[float, ...]:
    """Seconds until a run begins its first round, has done it, and ends."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*START, "run", "--data", data, "--model", model, "--method", "fedavg", "--rounds", "1", "--quiet"]
        begin, used = time.perf_counter(), 0.0
        run = subprocess.Popen(
            [*command, "--out", folder, "--name", "one"],
            env=environment(),
            stdout=subprocess.DEVNULL,
        )
        found: dict[int, float] = {}
        while run.poll() is None and 1 not in found:
            time.sleep(0.002)
            for step in steps(Path(folder) / "one" / "run.db"):
                if step not in found:
                    found[step] = time.perf_counter() - begin
                    used = used or processor(run.pid)
        if run.wait():
            sys.exit(f"startup.py: the run of {data} failed, see above")
        ends = time.perf_counter() - begin
        return found[0], found.get(1, ends), ends, used


def processor(process: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def steps(path: Path) -> list[int]:
    """The steps that a run has written down so far."""
    if not path.exists():
        return []
    try:
        base = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            return [int(step) for (step,) in base.execute("SELECT step FROM steps")]
        finally:
            base.close()
    except sqlite3.Error:  # it has no table yet, or is being written
        return []


def line(name: str, seconds: list[float]) -> str:
    return f"{name:34}{statistics.median(seconds):8.3f} s   ({min(seconds):.3f} to {max(seconds):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--data", default="uci_har")
    parser.add_argument("--model", default="mlp")
    args = parser.parse_args()
    commands = {
        "python": [sys.executable, "-c", "pass"],
        "import torch": [sys.executable, "-c", "import torch, os; os._exit(0)"],
        "potluck --help": [*START, "--help"],
        "potluck run --help": [*START, "run", "--help"],
    }
    taken: dict[str, list[float]] = {name: [] for name in (*commands, *MARKS)}
    for number in range(args.repeat + 1):  # the first time writes bytecode and compiles
        for name, command in commands.items():
            seconds = quiet(*command)
            if number:
                taken[name].append(seconds)
        for name, seconds in zip(MARKS, started(args.data, args.model), strict=True):
            if number:
                taken[name].append(seconds)
    print(f"median of {args.repeat} starts (least to most)")
    for name, found in taken.items():
        print(line(f"potluck run {args.data}: {name}" if name in MARKS else name, found))


if __name__ == "__main__":
    main()
