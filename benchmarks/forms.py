"""How often the rule for the form of a dense network's first layer picks the faster one, and what a wrong pick costs.

    python benchmarks/forms.py [--repeat 5]

The compiled kernel trains eight clients in both forms, over a grid of inputs, hidden units, samples and epochs. Times
are processor time, the best of some repetitions, both forms in turn.
"""

from __future__ import annotations

import argparse
import time
from itertools import product

import torch
from torch.func import vmap

from potluck import keys
from potluck.compiled import kernels, stack
from potluck.fleet import Data
from potluck.learn import batches

CLIENTS, CLASSES, BATCH = 8, 6, 20


def seconds(inputs: int, hidden: int, samples: int, epochs: int, repeat: int) -> dict[str, float]:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(CLIENTS, samples, inputs, generator=draw)
    y = torch.randint(0, CLASSES, (CLIENTS, samples), generator=draw)
    number = torch.tensor([keys.number(i) for i in range(CLIENTS)])
    rows, counts = vmap(lambda x, y, key: batches(Data(x, y, torch.ones(samples)), BATCH, epochs, key))(x, y, number)
    shapes = (hidden, inputs), (hidden,), (CLASSES, hidden), (CLASSES,)
    given = [(0.05 * torch.randn(shape, generator=draw)).expand(CLIENTS, *shape) for shape in shapes]
    numbers = torch.full((CLIENTS,), 0.01), torch.zeros(CLIENTS), torch.ones(CLIENTS)
    layers = (0, 1, "relu"), (2, 3, "none")
    best = dict.fromkeys(("direct", "dual"), float("inf"))
    for _ in range(repeat):
        for form in best:
            begin = time.process_time()
            stack.train_dense(
                x, y, rows, counts, numbers, layers, given, [True] * 4, [None] * 4, "cross_entropy", 0.0, False, form
            )
            best[form] = min(best[form], time.process_time() - begin)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    torch.set_num_threads(1)
    lost, right, cases = [], 0, list(product((40, 200, 900), (16, 128), (20, 60, 200), (1, 2, 5)))
    for inputs, hidden, samples, epochs in cases:
        best = seconds(inputs, hidden, samples, epochs, repeat)
        steps = epochs * -(-samples // BATCH)
        dual = kernels("dense").is_dual(samples, epochs * samples, inputs, hidden, steps, False, False)
        chosen = best["dual" if dual else "direct"]
        right += chosen == min(best.values())
        lost.append(chosen / min(best.values()))
        print(
            f"{inputs:5} inputs {hidden:4} hidden {samples:4} samples {epochs:2} epochs: direct "
            f"{1e6 * best['direct'] / CLIENTS:7.0f} us, dual {1e6 * best['dual'] / CLIENTS:7.0f} us a client, chosen "
            f"{'dual' if dual else 'direct'}, {lost[-1]:.2f} of the best"
        )
    print(f"{right} of {len(cases)} right; mean {sum(lost) / len(lost):.3f} of the best time, worst {max(lost):.2f}")


if __name__ == "__main__":
    main()
