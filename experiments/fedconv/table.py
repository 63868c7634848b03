"""The tables of docs/methods/fedconv.md: every experiment of this folder over Dirichlet alphas and seeds.

    python experiments/fedconv/table.py mnist --out runs/fedconv

Runs that are finished in the folder are read, not repeated.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import potluck
from potluck.runs.experiment import Experiment
from potluck.runs.results import Run

HERE = Path(__file__).parent


def one(data: str, row: str, alpha: float, seed: int, out: Path) -> Run:
    name = f"{data}-{row}-a{alpha:g}-s{seed}"
    run = Run(out / name)
    if not run.finished:
        experiment = Experiment.read(HERE / f"{data}_{row}.toml").with_(
            partition={"alpha": alpha}, run={"seed": seed, "name": name, "out": str(out)}
        )
        run = potluck.run(experiment)
    return run


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", choices=["mnist", "depth"])
    parser.add_argument("--rows", nargs="*")
    parser.add_argument("--alphas", nargs="*", type=float, default=[0.05, 0.1, 10000])
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("runs/fedconv"))
    asked = parser.parse_args()
    rows = asked.rows or sorted(path.stem.removeprefix(f"{asked.data}_") for path in HERE.glob(f"{asked.data}_*.toml"))
    for row in rows:
        for alpha in asked.alphas:
            summaries = [one(asked.data, row, alpha, seed, asked.out).summary for seed in asked.seeds]
            line = {"row": row, "alpha": alpha}
            for figure in ("global", "mean"):
                values = [summary["accuracy"][figure] for summary in summaries]
                if None not in values:
                    spread = statistics.stdev(values) if len(values) > 1 else 0.0
                    line[figure] = f"{100 * statistics.mean(values):.1f} ± {100 * spread:.1f}"
            line["bytes_up"] = summaries[0]["bytes"]["up"]
            line["seconds"] = round(sum(summary["wall_seconds"] for summary in summaries))
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
