"""BalanceFL against FedAvg on long-tailed data, class by class: `python experiments/fedcfc/balance.py --out FILE`.

Ten clients with unlike shares of UCI-HAR's six classes, whose sizes fall to a hundredth (FedCFC's section 5.3, after
BalanceFL's). The common model is judged on rows that no client has, all classes alike. Half of them choose the learning
rate of each arm and seed, the other half gives the figures. Finished runs are kept.
"""

from __future__ import annotations

import argparse
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import torch
from protocol import Kept, spread

from potluck.fleet import Data, Params
from potluck.learn import take
from potluck.models import Model
from potluck.runs.build import build
from potluck.runs.experiment import Experiment

RATES = (0.03, 0.1, 0.3)
ARMS: dict[str, dict[str, Any]] = {
    "fedavg": {"name": "fedavg"},
    "balancefl": {"name": "balancefl"},
    "balancefl, features augmented": {"name": "balancefl", "augment": True},
}
PLAN: dict[str, Any] = {
    "data": {"source": "uci_har_10hz", "standardise": "global"},
    "partition": {"kind": "longtail", "clients": 10, "tau": 10, "ratio": 0.01, "test_share": 0.1},
    "server": {"share": 0.4},  # what the common model is judged on
    "fleet": {"devices": "raspberry-pi-4"},
    "model": {"name": "mlp", "hidden": [64]},
}


def carried_out(method: dict[str, Any], lr: float, seed: int, rounds: int) -> dict[str, Any]:
    """The accuracy on each class after the last round, on the two halves of the server's rows."""
    recipe = {"epochs": 2, "batch": 16, "lr": lr, "clip": 5.0}
    plan = {**PLAN, "method": {**method, "recipe": recipe}, "stop": {"rounds": rounds}, "run": {"seed": seed}}
    session = build(Experiment.of(plan))
    try:
        first = session.method.start(session.weights, session.config)
        for state in session.method.server(session.fleet, first, session.config):
            if state.round >= rounds:
                break
        assert session.servers is not None
        halves = [torch.arange(at, len(session.servers.y), 2) for at in (0, 1)]
        known = [
            by_class(session.model, state.weights, take(session.servers, half, session.servers.weight[half]))
            for half in halves
        ]
        held = session.federation.class_counts(range(len(session.federation))).sum(0)
    finally:
        session.close()
    return {"valid": known[0], "test": known[1], "rows": held.tolist()}


@torch.no_grad()
def by_class(model: Model, weights: Params, data: Data) -> list[float]:
    right = model.logits(weights, data.x).argmax(-1) == data.y
    return [float(right[data.y == label].float().mean()) for label in range(model.classes)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    kept, ends = Kept(args.out), {}
    for name, method in ARMS.items():
        ends[name] = []
        for seed in range(args.seeds):
            tried = [
                kept.of(f"{name} lr={lr:g} seed={seed}", partial(carried_out, method, lr, seed, args.rounds))
                for lr in RATES
            ]
            best = max(range(len(RATES)), key=lambda k: statistics.mean(tried[k]["valid"]))
            print(f"{name} seed {seed}: lr {RATES[best]:g}, rows of the classes {tried[best]['rows']}", flush=True)
            ends[name].append(tried[best]["test"])
    for name, found in ends.items():
        parts = {"all": slice(None), "first three": slice(3), "last three": slice(3, None)}
        told = "  ".join(f"{part} {spread([statistics.mean(one[at]) for one in found])}" for part, at in parts.items())
        ahead = [
            statistics.mean(one) - statistics.mean(other) for one, other in zip(found, ends["fedavg"], strict=True)
        ]
        print(f"{name:30s} {told}  ahead of FedAvg {spread(ahead)}", flush=True)
        print(" " * 30, " ".join(spread([one[k] for one in found]) for k in range(len(found[0]))), flush=True)


if __name__ == "__main__":
    main()
