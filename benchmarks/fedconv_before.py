"""What the phases of a round of FedConv cost in the first form of its code, for `fedconv_tuning.py --round` beside it.

    git worktree add ../before 48eb28e
    cd ../before && PYTHONPATH=src python ../potluck/benchmarks/fedconv_before.py [method.e_c=3 ...]

One thread, processor time. The settings are those of that time's experiments/fedconv/mnist_fedconv.toml: 3 epochs of
compression, 1 of dilation, 5 of the weights, 32 rows a step.
"""

from __future__ import annotations

import importlib
import sys
import time
from typing import Any
from unittest import mock

import torch

from potluck.runs.build import build
from potluck.runs.experiment import Experiment


def main() -> None:
    torch.set_num_threads(1)
    tuning: Any = importlib.import_module("potluck.methods.parts.tuning")  # where it was then
    parts = build(Experiment.read("experiments/fedconv/mnist_fedconv.toml", ["method.e_p=1", *sys.argv[1:]]))
    spent: dict[str, list[float]] = {}
    tuned = tuning.tune

    def timed(model: Any, make: Any, free: Any, fixed: Any, rows: Any, **how: Any) -> Any:
        members = len(next(iter(free.values())))
        phase = "weights" if "stack" in make.__code__.co_freevars else "dilation" if fixed else "compression"
        began, found = time.process_time(), tuned(model, make, free, fixed, rows, **how)
        line = spent.setdefault(phase, [0.0, 0.0])
        line[0] += time.process_time() - began
        line[1] += len(how["rates"]) * -(-len(rows) // how["batch"]) * members
        return found

    with mock.patch.object(tuning, "tune", timed):
        program = parts.method.server(parts.fleet, parts.method.start(parts.weights, parts.config), parts.config)
        next(program)
        spent.clear()
        next(program)
    for phase, (processor, steps) in spent.items():
        print(f"{phase}: {steps:.0f} steps, {processor:.2f} s of processor", flush=True)


if __name__ == "__main__":
    main()
