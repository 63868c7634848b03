"""How much of the spread is the deal of the devices, and how much is the seed: three of each, all pairs.

python experiments/plan/deals.py fedavg uci_har_10hz
"""

from __future__ import annotations

import sys
import tempfile

import numpy as np

from potluck.runs import compare_plan, drive

SETTINGS = ["method.recipe.lr=0.1", "method.recipe.batch=16", "partition.most_rows=20", "partition.seed=0"]


def main(method: str, data: str, count: int = 3) -> None:
    values = {"data": {"source": data}, "fleet": {"devices": "mixed"}, "run": {"evaluate_every": 1000}}
    experiment = compare_plan.plan(values, [method], 1, SETTINGS).runs[0].experiment
    found = np.zeros((3, count, count))
    for deal in range(count):
        for seed in range(count):
            with tempfile.TemporaryDirectory() as folder:
                run = experiment.with_(fleet={"seed": deal}, run={"seed": seed, "out": folder})
                summary = drive.start(run).summary
            found[:, deal, seed] = (
                summary["accuracy"]["mean"],
                summary["virtual_seconds"],
                summary["energy"]["total"],
            )
    for name, table in zip(("accuracy", "seconds", "joules"), found, strict=True):
        deals, seeds = table.mean(1).std(ddof=1), table.mean(0).std(ddof=1)
        within = table.std(axis=1, ddof=1).mean()
        spread = f"std over deals {deals:.3g}, over seeds {seeds:.3g}, over seeds in one deal {within:.3g}"
        print(f"{name}: mean {table.mean():.4g}, {spread}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
