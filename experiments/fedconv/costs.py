"""Tables 2 and 3 of FedConv, from the runs that equal.py left: what a client and its link spend, method by method.

    python experiments/fedconv/costs.py mnist --out runs/equal

Mean over clients and seeds: the peak memory of their tasks, the seconds that they compute in a round (virtual: counted
operations at the device's rate), the bytes of a round, and the server's own seconds in the whole run. The last line is
the largest standard deviation over the seeds, of each column.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

from potluck.runs.results import Run

sys.path.insert(0, str(Path(__file__).parent))
from equal import BASE, DEFAULT, server_seconds, spread


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", choices=list(BASE))
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--rows", nargs="*", default=list(DEFAULT))
    parser.add_argument("--out", type=Path, default=Path("runs/equal"))
    asked = parser.parse_args()
    heads = ("", "memory, MB", "computing, ms a round", "up, kB a round", "down, kB a round", "server, s", "seeds")
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
    widest = [0.0] * 5
    for row in asked.rows:
        runs = [Run(asked.out / f"{asked.data}-{row}-a{asked.alpha:g}-s{seed}") for seed in asked.seeds]
        found = list(zip(*(costs(run) for run in runs if run.finished), strict=True))
        if found:
            line = " | ".join(f"{statistics.mean(values):.2f}" for values in found)
            print(f"| {row} | {line} | {len(found[0])} |")
            widest = [max(far, spread(list(values))) for far, values in zip(widest, found, strict=True)]
    print("| standard deviation, at most | " + " | ".join(f"{far:.2f}" for far in widest) + " | |")


def costs(run: Run) -> tuple[float, ...]:
    tasks = run.table("tasks")
    clients, rounds = {task["client"] for task in tasks}, run.experiment.stop.rounds or 1
    memory = [max(task["memory"] for task in tasks if task["client"] == client) for client in clients]
    shares = len(clients) * rounds or 1
    seconds = sum(task["trained"] - task["started"] for task in tasks) / shares
    up, down = (sum(task[f"bytes_{way}"] for task in tasks) / shares / 1e3 for way in ("up", "down"))
    return statistics.mean(memory or [0]) / 1e6, 1e3 * seconds, up, down, server_seconds(run)


if __name__ == "__main__":
    main()
