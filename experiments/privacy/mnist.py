"""Accuracy against epsilon with 1,000 clients of MNIST: the table of docs/privacy.md.

python experiments/privacy/mnist.py --choose --out runs/privacy           clip and learning rate, on validation rows
python experiments/privacy/mnist.py --seeds 3 --out runs/privacy          the table, on test rows

MNIST dealt to 1,000 clients at random (60 rows each, with their test rows), an MLP with 32 hidden units (25,450
parameters), FedAvg with two local passes, 50 rounds, each client asked with probability 0.2, delta 1e-5. A run that is
there is not run again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from potluck.runs import drive
from potluck.runs.experiment import Experiment

EPSILONS = (None, 8.0, 4.0, 2.0, 1.0)
CLIP, RATE = 0.5, 0.1  # a first guess; --choose looks for better ones on validation rows
GRID = [(clip, lr) for clip in (0.25, 0.5, 1.0) for lr in (0.05, 0.1, 0.2)]


def accuracy(out: Path, epsilon: float | None, clip: float, lr: float, seed: int, rows: str) -> tuple[float, float]:
    """The mean accuracy over clients of one run, and the epsilon it spent (0 without privacy)."""
    name = f"{rows}-eps{epsilon}-clip{clip}-lr{lr}-s{seed}"
    kept = out / f"{name}.json"
    if not kept.exists():
        privacy: dict[str, Any] = {"unit": "client", "clip": clip, "epsilon": epsilon, "rate": 0.2, "accountant": "pld"}
        experiment = Experiment.of(
            {
                "data": {"source": "mnist"},
                "partition": {"kind": "iid", "clients": 1000},
                "model": {"name": "mlp", "hidden": [32]},
                "fleet": {"devices": "boards"},
                "method": {
                    "name": "fedavg",
                    "cohort": 200 if epsilon is None else 0,
                    "recipe": {"lr": lr, "epochs": 2, "batch": 20},
                },
                "stop": {"rounds": 50},
                "privacy": {} if epsilon is None else privacy,
                "run": {
                    "seed": seed,
                    "out": str(out / name),
                    "evaluate_every": 50,
                    "evaluate_clients": 1000,
                    "evaluate_on": rows,
                },
            }
        )
        summary = drive.start(experiment).summary
        told = {"accuracy": summary["accuracy"]["mean"], "spent": summary.get("privacy", {}).get("spent", 0.0)}
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(told))
    told = json.loads(kept.read_text())
    return told["accuracy"], told["spent"]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--out", type=Path, default=Path("runs/privacy"))
    asked.add_argument("--seeds", type=int, default=3)
    asked.add_argument("--choose", action="store_true")
    given = asked.parse_args()
    if given.choose:
        for clip, lr in GRID:
            found = accuracy(given.out, 4.0, clip, lr, 100, "valid")[0]
            print(f"clip {clip:g}, learning rate {lr:g}: {found:.4f} on validation rows", flush=True)
        return
    print("| epsilon | spent | accuracy |\n|---|---|---|")
    for epsilon in EPSILONS:
        runs = [accuracy(given.out, epsilon, CLIP, RATE, seed, "test") for seed in range(given.seeds)]
        scores = [100 * one for one, _ in runs]
        spread = stdev(scores) if len(scores) > 1 else 0.0
        name = "no privacy" if epsilon is None else f"{epsilon:g}"
        print(f"| {name} | {max(spent for _, spent in runs):.3g} | {fmean(scores):.1f} ± {spread:.1f} |", flush=True)


if __name__ == "__main__":
    main()
