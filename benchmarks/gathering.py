"""What it takes to draw, gather and standardise the samples of a cohort, by NumPy and by kernels.

    python benchmarks/gathering.py [--data mnist uci_har] [--clients 1000000] [--cohort 100] [--rounds 40]

Each round has other clients, so statistics are new each time. The best round counts, in processor time; the two ways
take turns. Equal samples are asserted.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from potluck import compiled, keys
from potluck.data.federate import federate
from potluck.data.intake.spec import Intake
from potluck.data.load import load
from potluck.data.spec import PartitionSpec
from potluck.engines import freed


def measured(data: str, clients: int, cohort: int, samples: int, rounds: int) -> tuple[float, float]:
    """Seconds of NumPy and of kernels."""
    rows = load(data, Intake())
    sides = [federate(rows, PartitionSpec(kind="iid", clients=clients, samples=samples)) for _ in range(2)]
    best = [float("inf")] * 2
    for number in range(rounds):
        chosen = np.sort(keys.rng("gathering", number).choice(clients, cohort, replace=False))
        begin = time.process_time()
        with compiled.off():
            x = sides[0].materialise_many(chosen, "train", samples)[0]
        middle = time.process_time()
        other = sides[1].materialise_many(chosen, "train", samples)[0]
        end = time.process_time()
        assert x.tobytes() == other.tobytes()
        best = [min(best[0], middle - begin), min(best[1], end - middle)]
    return best[0], best[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["mnist", "uci_har"])
    parser.add_argument("--clients", type=int, default=1_000_000)
    parser.add_argument("--cohort", type=int, default=100)
    parser.add_argument("--samples", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=40)
    args = parser.parse_args()
    freed.keep()
    print(f"{'data':>12}{'NumPy':>12}{'kernels':>12}")
    for data in args.data:
        by_numpy, by_kernels = measured(data, args.clients, args.cohort, args.samples, args.rounds)
        print(f"{data:>12}{1e3 * by_numpy:>9.2f} ms{1e3 * by_kernels:>9.2f} ms")


if __name__ == "__main__":
    main()
