"""How a round's time and the memory grow with the number of registered clients, from 10 to 1,000,000.

    python benchmarks/scaling.py [--clients 10 1000 1000000] [--rounds 10] [--picture scaling.png]

W0's model and samples; each round asks 100 clients, or all if there are fewer. Every size runs in a process of its own,
so that its peak of memory is its own. Times are processor time of the best round, in one thread.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
from bench import engine
from workloads import WORKLOADS, Arrays, model_of

SIZES = (10, 100, 1_000, 10_000, 100_000, 1_000_000)


def one(clients: int, rounds: int) -> dict[str, float]:
    """Build a fleet of this size and run some rounds."""
    torch.set_num_threads(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.process_time()
    w = replace(WORKLOADS["W0"], clients=clients, cohort=min(100, clients))
    round_ = engine(w, model_of(w), Arrays(w), 1)
    round_(0)  # the first round prices the task and reads the kernels
    ready = time.process_time() - begin
    best = float("inf")
    for number in range(1, rounds + 1):
        begin = time.process_time()
        round_(number)
        best = min(best, time.process_time() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "clients": clients,
        "ready": ready,
        "client_ms": 1e3 * best / w.cohort,
        "peak_mb": peak / 1024,
        "own_mb": (peak - before) / 1024,
    }


def draw(rows: list[dict[str, float]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, sides = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    clients = [row["clients"] for row in rows]
    for side, name, title in (
        (sides[0], "client_ms", "processor time per client and round, ms"),
        (sides[1], "peak_mb", "peak memory, MB"),
    ):
        side.plot(clients, [row[name] for row in rows], marker="o", color="#0072B2")
        side.set_xscale("log")
        side.set_ylim(0, 1.1 * max(row[name] for row in rows))
        side.set_xlabel("registered clients")
        side.set_title(title, fontsize=10)
        side.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--alone", action="store_true", help="one size in this process, as JSON")
    args = parser.parse_args()
    if args.alone:
        print(json.dumps(one(args.clients[0], args.rounds)))
        return
    print(f"{'clients':>10}{'ready after':>13}{'per client':>12}{'peak memory':>13}{'of the fleet':>14}")
    rows = []
    for clients in args.clients:
        command = [sys.executable, __file__, "--alone", "--clients", str(clients), "--rounds", str(args.rounds)]
        row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        rows.append(row)
        print(
            f"{clients:>10,}{row['ready']:>11.2f} s{row['client_ms']:>9.3f} ms{row['peak_mb']:>10.0f} MB"
            f"{row['own_mb']:>11.0f} MB",
            flush=True,
        )
    if args.picture:
        draw(rows, args.picture)


if __name__ == "__main__":
    main()
