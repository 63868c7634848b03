"""What a compressed model still tells about the model that it was made of (FedConv, sections 2.2 and 2.3).

    python experiments/fedconv/information.py mnist --seeds 0 1 2

The global model is pre-trained on the server's tune rows, then halved: to the leading channels (a slice), to the
channels with the largest weights (pruning), and by tuned kernels. Two mutual informations, in bits. `parameters`: of an
entry of the global model and the entry at its place in the narrow model at full width, zero where there is none, or, of
the convolved one, dilated by the transpose of its kernels; by histograms of 32 equal steps. `answers`: of the classes
that the two models give to 3,000 rows that nobody held, as is accuracy. Print measures the former for ResNet18 and does
not say how.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import defaultdict
from pathlib import Path

import torch
from torch import Tensor

from potluck import keys
from potluck.fleet import Params
from potluck.methods import fedconv
from potluck.methods.parts.submodels import kernels, tuning
from potluck.methods.parts.submodels.widths import cut, leading, sorted_channels
from potluck.models import Model
from potluck.runs.build import build
from potluck.runs.experiment import Experiment

sys.path.insert(0, str(Path(__file__).parent))
from equal import T, spread
from table import spare

HERE = Path(__file__).parent
STEPS = 32


def bits(joint: Tensor) -> float:
    """The mutual information of a table of counts."""
    p = joint.double() / joint.sum()
    alone = p.sum(1, keepdim=True) * p.sum(0, keepdim=True)
    return float((p * (p / alone).log2())[p > 0].sum())


def of_parameters(one: Params, other: Params, names: frozenset[str]) -> float:
    """Over all weights; beyond 99.5 % of the global model's sizes they count for the last step."""
    a, b = (torch.cat([model[name].flatten() for name in sorted(names)]) for model in (one, other))
    reach = float(a.abs().kthvalue(int(0.995 * a.numel())).values)
    at = [((value / reach).clamp(-1, 1) * (STEPS / 2)).floor().clamp_max(STEPS / 2 - 1).long() for value in (a, b)]
    place = (at[0] + STEPS // 2) * STEPS + at[1] + STEPS // 2
    return bits(torch.bincount(place, minlength=STEPS * STEPS).reshape(STEPS, STEPS))


def of_answers(model: Model, one: Params, other: Params, x: Tensor) -> float:
    with torch.no_grad():
        a, b = (model.logits(weights, x).argmax(-1) for weights in (one, other))
    return bits(torch.bincount(a * model.classes + b, minlength=model.classes**2).reshape(model.classes, -1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", choices=["mnist", "depth"])
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--width", type=float, default=0.5)
    parser.add_argument("--epochs", type=int, default=40, help="of tuning")
    asked = parser.parse_args()
    found: dict[str, list[float]] = defaultdict(list)
    for seed in asked.seeds:
        overrides = [f"run.seed={seed}", "partition.alpha=10000", f"method.kernels.compress_epochs={asked.epochs}"]
        experiment = Experiment.read(HERE / f"{asked.data}_fedconv.toml", overrides)
        parts = build(experiment)
        cfg, model = parts.config, parts.fleet.home.model
        rows = tuning.divided(parts.fleet.home.data, keys.key(cfg.seed, "server rows"), cfg.server.validate_share)
        own = fedconv.opened(parts.fleet, rows, cfg)
        weights = own.tuner.trained(parts.weights, "pre-training", cfg.server.pretrain_epochs, cfg.recipe.lr)
        own.tuner.begin(0)
        plan, places = own.plan, leading(own.plan, asked.width)
        ordered, nothing = sorted_channels(weights, plan), {name: torch.zeros_like(v) for name, v in weights.items()}
        made = fedconv.compression(own, fedconv.State(weights), {asked.width})[asked.width]
        delta = kernels.made(weights, list(model.trainable), plan, asked.width, keys.key(0))
        slices = {"a slice": (weights, cut(weights, plan, places)), "pruning": (ordered, cut(ordered, plan, places))}
        cases = {name: (base, sub, kernels.dilate(sub, delta, nothing)) for name, (base, sub) in slices.items()}
        cases["itself"] = (weights, weights, weights)
        still = {name: value for name, value in made.by.items() if not name.endswith("/c")}
        cases["convolution"] = (weights, made.weights, kernels.dilate(made.weights, still, nothing))
        x, y = (torch.from_numpy(one) for one in spare(experiment, 3000)[1:])
        for name, (base, sub, whole) in cases.items():
            with torch.no_grad():
                right = (model.logits(sub, x).argmax(-1) == y).double().mean()
            found[f"{name}: accuracy"].append(100 * float(right))
            found[f"{name}: parameters"].append(of_parameters(base, whole, model.trainable))
            found[f"{name}: answers"].append(of_answers(model, weights, sub, x))
    for name, values in sorted(found.items()):
        print(f"{name}: {statistics.mean(values):.2f} ± {spread(values):.2f}")
    for what in ("accuracy", "parameters", "answers"):
        for other in ("pruning", "a slice"):
            pairs = zip(found[f"convolution: {what}"], found[f"{other}: {what}"], strict=True)
            gaps = [mine - theirs for mine, theirs in pairs]
            if len(gaps) in T:
                wide = T[len(gaps)] * spread(gaps) / len(gaps) ** 0.5
                print(f"{what}: convolution - {other} = {statistics.mean(gaps):+.2f} ± {wide:.2f}")


if __name__ == "__main__":
    main()
