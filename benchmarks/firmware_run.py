"""One experiment file twice: all clients simulated, then the first three on emulated boards; how far apart they end.

    python benchmarks/firmware_run.py experiments/fedcfc/board.toml --set stop.rounds=3

Prints the largest difference between two weights of a client's model, whether the same tasks were sent in the same
order, accuracies, and what each board's line carried per round.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
import time
from pathlib import Path

from safetensors.torch import load_file

from potluck.runs import drive
from potluck.runs.deal import federation_of
from potluck.runs.experiment import Experiment
from potluck.runs.record import read
from potluck.runs.results import Run

BOARDS = ("nano33", "nano33", "nano33")
TASKS = "SELECT number, client, program, sent, outcome FROM tasks ORDER BY sent, number"
TOLD = "SELECT client, detail FROM events WHERE kind = 'board'"


def apart(one: Run, other: Run) -> float:
    files = sorted((one.folder / "models").rglob("*.safetensors"))
    pairs = [(load_file(f), load_file(other.folder / f.relative_to(one.folder))) for f in files]
    return max(float((a[name] - b[name]).abs().max()) for a, b in pairs for name in a)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plan = Experiment.read(given.experiment, [*given.set, f"run.out={folder}", "run.evaluate_every=1000"])
        names = list(federation_of(plan).names)
        boards = {names[i]: f"qemu:{board}" for i, board in enumerate(BOARDS)}
        began = time.monotonic()
        simulated = drive.start(plan)
        middle = time.monotonic()
        mixed = drive.start(plan.with_(fleet={"boards": boards}))
        ended = time.monotonic()
        same = read(simulated.folder / "run.db", TASKS) == read(mixed.folder / "run.db", TASKS)
        print(f"{len(names)} clients, {simulated.summary['rounds']} rounds, boards {', '.join(boards)}")
        print(f"same tasks in the same order: {same}")
        print(f"largest difference between two weights: {apart(simulated, mixed):.1e}")
        ours, theirs = (run.summary["accuracy"]["mean"] for run in (simulated, mixed))
        print(f"accuracy simulated {ours:.4f}, mixed {theirs:.4f}")
        print(f"wall time simulated {middle - began:.0f} s, mixed {ended - middle:.0f} s")
        told = [row["detail"] for row in read(Path(mixed.folder) / "run.db", TOLD)]
        later = [[float(n) for n in re.findall(r"took ([\d.]+) s and (\d+) bytes down, (\d+) up", t)[0]] for t in told]
        seconds, down, up = (statistics.mean(column) for column in zip(*later[len(boards) :], strict=True))
        print(f"a board's round after the first: {seconds:.1f} s under emulation, {down:.0f} bytes down, {up:.0f} up")


if __name__ == "__main__":
    main()
