"""FedConv's kernels part by part, as in Figure 7a: a sub-model right after compression, before any client trained it.

    python experiments/fedconv/forms.py mnist --share 0.04 --seeds 0 1 2

Random kernels, first plain convolutions, then with the two 1x1 convolutions, the MLR, normalised kernels, and the
cosine rate, each on top of those before; last the default form here, which begins as a delta. The global model is
pre-trained on the server's rows, and its sub-model of one width is tuned there. Accuracy is that on 3,000 rows that
nobody held. Kernels that stay near chance are drawn again, up to five times, by the rows to choose by.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import defaultdict
from pathlib import Path

import torch

from potluck import keys
from potluck.methods import fedconv
from potluck.methods.parts.submodels import tuning
from potluck.runs.build import build
from potluck.runs.experiment import Experiment

sys.path.insert(0, str(Path(__file__).parent))
from equal import T, spread
from table import spare

HERE = Path(__file__).parent
PARTS = (  # what each form adds to the one before
    ("plain convolution", {"init": "random", "activation": "identity", "normed": "false", "schedule": "constant"}),
    ("and the 1x1 convolutions", {"pre": "stack16"}),
    ("and the MLR", {"activation": "mlr"}),
    ("and normalised kernels", {"normed": "true"}),
    ("and the cosine rate", {"schedule": "cosine"}),
)


def forms() -> dict[str, dict[str, str]]:
    found, so_far = {}, dict[str, str]()
    for name, more in PARTS:
        so_far = so_far | more
        found[name] = so_far
    return found | {"from a delta (default)": {}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=["mnist", "depth"])
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--share", type=float, default=0.04, help="of all rows, at the server")
    parser.add_argument("--width", type=float, default=0.75)
    parser.add_argument("--epochs", type=int, default=8, help="of tuning")
    asked = parser.parse_args()
    found: dict[str, list[float]] = defaultdict(list)
    for seed in asked.seeds:
        weights = None
        for name, settings in forms().items():
            overrides = [f"run.seed={seed}", "partition.alpha=10000", f"server.share={asked.share}"]
            overrides += [f"method.kernels.{key}={value}" for key, value in settings.items()]
            overrides += [f"method.kernels.compress_epochs={asked.epochs}", "method.kernels.look=2"]
            experiment = Experiment.read(HERE / f"{asked.data}_fedconv.toml", overrides)
            parts = build(experiment)
            cfg, model = parts.config, parts.fleet.home.model
            rows = tuning.divided(parts.fleet.home.data, keys.key(cfg.seed, "server rows"), cfg.server.validate_share)
            own = fedconv.opened(parts.fleet, rows, cfg)
            x, y = (torch.from_numpy(one) for one in spare(experiment, 3000)[1:])
            if weights is None:
                weights = own.tuner.trained(parts.weights, "pre-training", cfg.server.pretrain_epochs, cfg.recipe)
                found["the global model"].append(right(model, weights, x, y))
            own.tuner.begin(0)
            made = fedconv.compression(own, fedconv.State(weights), {asked.width})[asked.width]
            found[name].append(right(model, made.weights, x, y))
            print(f"seed {seed}, {name}: {found[name][-1]:.1f}", flush=True)
    before = None
    for name, values in found.items():
        line = f"{name}: {statistics.mean(values):.1f} ± {spread(values):.1f}"
        if before is not None and len(values) in T:
            gaps = [mine - theirs for mine, theirs in zip(values, before, strict=True)]
            line += f", {statistics.mean(gaps):+.1f} ± {T[len(gaps)] * spread(gaps) / len(gaps) ** 0.5:.1f}"
        print(line)
        before = values


def right(model: object, weights: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> float:
    with torch.no_grad():
        said = model.logits(weights, x).argmax(-1)  # type: ignore[attr-defined]
    return 100 * float((said == y).double().mean())


if __name__ == "__main__":
    main()
