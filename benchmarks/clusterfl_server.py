"""ClusterFL's server step for a large fleet, as ratios to one plain matrix product of the same size.

`python benchmarks/clusterfl_server.py [--clients 1000] [--parameters 58000]`: the product is F (M x M) by W (M x D),
the least that any coupling of M models of D weights costs. Ratios of the least processor times of one run, one thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

from potluck.fleet import Data
from potluck.methods.clusterfl import admm, mm
from potluck.methods.parts.clusterfl import relation, vectors
from potluck.models import build


def seconds(work: Callable[[], object], repeats: int) -> float:
    taken = []
    for _ in range(repeats):
        began = time.process_time()  # other load on the machine changes it little
        work()
        taken.append(time.process_time() - began)
    return min(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--parameters", type=int, default=58_000)
    parser.add_argument("--probe", type=int, default=1000, help="probe inputs in all")
    parser.add_argument("--repeats", type=int, default=2)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    draw = torch.Generator().manual_seed(0)
    features, classes = 900, 3
    hidden = max(
        1, (asked.parameters - classes) // (features + 1 + classes)
    )  # the network of the IMU experiment, scaled
    model = build("mlp", (features,), classes, {"hidden": (hidden,)})
    like = model.init(0)
    width = vectors.flat(like, vectors.trained(model, like)).numel()
    w = torch.randn(asked.clients, width, generator=draw) * 0.05
    f = relation.normalised(torch.rand(asked.clients, asked.clients, generator=draw))
    omega = f.T @ w
    probe = Data(torch.randn(asked.probe, features, generator=draw), torch.zeros(asked.probe), torch.ones(asked.probe))
    logits = torch.randn(asked.clients, asked.probe, classes, generator=draw)
    stacked = vectors.stacked(model, like, w, torch.zeros(asked.clients, 0))
    beta = 0.1
    unit = seconds(lambda: f @ w, asked.repeats)
    print(f"{asked.clients} clients x {width} parameters; one product F W: {unit:.2f} s")
    for name, work in {
        "mm: Z = 2 beta F F' W": lambda: mm(f, w, beta),
        "admm: Omega, lambda, Z": lambda: admm(f, w, omega, beta, 10 * beta),
        f"KL of all pairs on {asked.probe} inputs, and F": lambda: relation.indicator(relation.divergence(logits, 6.0)),
        "clusters from F": lambda: relation.components(relation.correlation(f)),
        f"forward pass of all models on {asked.probe} inputs": lambda: relation.answers(model, stacked, probe),
    }.items():
        print(f"{name:52s} {seconds(work, asked.repeats) / unit:6.2f} products")


if __name__ == "__main__":
    main()
