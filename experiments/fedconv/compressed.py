"""How good a sub-model is right after compression, before any client trained it, against the global model.

    python experiments/fedconv/compressed.py mnist --seeds 0 1 2

The global model is pre-trained on the server's tune rows and every width's kernels are tuned there, as in round 1 of
FedConv; then, and only then, all models are evaluated on all clients' test rows.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from pathlib import Path

from potluck import keys
from potluck.methods import fedconv
from potluck.methods.parts.submodels import tuning
from potluck.methods.parts.submodels.widths import cut, leading
from potluck.runs.build import build
from potluck.runs.experiment import Experiment

HERE = Path(__file__).parent
WIDTHS = (1.0, 0.75, 0.5, 0.25)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", choices=["mnist", "depth"])
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--share", type=float, help="of all rows, at the server")
    parser.add_argument(
        "--set", nargs="*", default=[], help="method settings as key=value, such as kernels.compress_epochs=20"
    )
    asked = parser.parse_args()
    found = defaultdict(list)
    for seed in asked.seeds:
        overrides = [f"run.seed={seed}", "partition.alpha=10000", *(f"method.{text}" for text in asked.set)]
        overrides += [f"server.share={asked.share}"] if asked.share else []
        parts = build(Experiment.read(HERE / f"{asked.data}_fedconv.toml", overrides))
        cfg = parts.config
        rows = tuning.divided(parts.fleet.home.data, keys.key(cfg.seed, "server rows"), cfg.server.validate_share)
        own = fedconv.opened(parts.fleet, rows, cfg)
        weights = own.tuner.trained(parts.weights, "pre-training", cfg.server.pretrain_epochs, cfg.recipe.lr)
        own.tuner.begin(0)
        subs = fedconv.compression(own, fedconv.State(weights), set(WIDTHS))
        for width in WIDTHS:
            sub = subs[width].weights
            found[f"{width:g}"].append(parts.evaluator([sub] * len(parts.evaluator.clients), sub).shared)
            slice_ = cut(weights, own.plan, leading(own.plan, width))
            found[f"{width:g}, untuned slice"].append(
                parts.evaluator([slice_] * len(parts.evaluator.clients), slice_).shared
            )
    for name, values in found.items():
        print(f"{name}: {100 * statistics.mean(values):.1f} ± {100 * statistics.stdev(values):.1f}")


if __name__ == "__main__":
    main()
