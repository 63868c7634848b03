"""Every system by its bare name, next to its baselines: nothing but the data, the rows per client and the seed is set.

    python experiments/defaults/table.py                                   # 12 labelled rows per client, three datasets
    python experiments/defaults/table.py --rows 0 --data watch_exercises_10hz --only centaur ucd local fedavg

Runs go to runs/defaults and are kept: the same command continues after an interruption, and prints the table.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import mean, stdev

import potluck
from potluck.runs.compare import state_of
from potluck.runs.results import Run

DATA = ("uci_har_10hz", "motionsense_10hz", "watch_exercises_10hz")
METHODS = (
    "local", "fedavg", "ftl", "clusterfl", "echopfl", "fedcfc",
    "fedconv", "standalone", "serveralone", "centaur", "ucd",
)  # fmt: skip


def accuracy(out: Path, data: str, method: str, rows: int, seed: int) -> float:
    name = f"{method}-{data}-{rows or 'all'}-s{seed}"
    run = Run(out / name)
    if not (run.folder / "experiment.toml").exists():
        run = potluck.run(
            {
                "data": {"source": data},
                "partition": {"most_rows": rows} if rows else {},
                "method": {"name": method},
                "run": {"out": str(out), "name": name, "seed": seed, "evaluate_every": 1000},
            }
        )
    elif state_of(run) != "finished":
        run = potluck.resume(run.folder)
    found = float(run.summary["accuracy"]["mean"])
    print(f"  {name}: {found:.3f}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=12, help="labelled rows per client; 0: all")
    parser.add_argument("--data", nargs="+", default=list(DATA))
    parser.add_argument("--only", nargs="+", default=list(METHODS), metavar="METHOD")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/defaults"))
    given = parser.parse_args()
    found = {
        (data, method): [accuracy(given.out, data, method, given.rows, seed) for seed in range(given.seeds)]
        for data in given.data
        for method in given.only
    }
    print(f"\n| method | {' | '.join(given.data)} |\n|---|{'---|' * len(given.data)}")
    for method in given.only:
        cells = [found[data, method] for data in given.data]
        shown = [f"{mean(cell):.3f} ± {stdev(cell):.3f}" if len(cell) > 1 else f"{cell[0]:.3f}" for cell in cells]
        print(f"| `{method}` | {' | '.join(shown)} |")


if __name__ == "__main__":
    main()
