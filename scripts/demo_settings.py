"""Choose the demo's settings on rows set aside from training, never on test rows, and print what to put into
`potluck.runs.demo.SETTINGS`:

    python scripts/demo_settings.py            # those the demo has; about ten minutes on two cores
    python scripts/demo_settings.py NAME...    # others

Every method gets the same number of candidates for its step size; where a second setting decides how a method
behaves, its candidates are tried too. The winner has the highest mean validation accuracy over two seeds.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from pathlib import Path

from potluck.cli.watch import Quiet
from potluck.runs import compare, demo

RATES = {"lr": [0.02, 0.05, 0.1, 0.2, 0.5]}
MORE = {"fedprox": {"mu": [0.001, 0.01, 0.1]}, "fedyogi": {"server_lr": [0.003, 0.01, 0.03]}}


def main(chosen: list[str]) -> None:
    for method in chosen or demo.SETTINGS:
        grid = RATES | MORE.get(method, {})
        found = []
        for values in itertools.product(*grid.values()):
            settings = dict(zip(grid, values, strict=True))
            accuracy = validated(method, settings)
            found.append((accuracy, settings))
            print(f"{method} {settings}: {accuracy:.4f}", flush=True)
        accuracy, settings = max(found, key=lambda pair: pair[0])
        print(f'    "{method}": {settings},  # {accuracy:.3f}', flush=True)


def validated(method: str, settings: dict[str, float]) -> float:
    values = demo.experiment(demo.ROUNDS) | {"data": {"source": "potluck.runs.demo:without_test"}}
    planned = compare.plan(values, [method], 2, [f"method.{name}={value}" for name, value in settings.items()])
    with tempfile.TemporaryDirectory() as folder:
        runs = compare.carry_out(planned, Path(folder), Quiet())
        return sum(run.summary["accuracy"]["mean"] for run in runs) / len(runs)


if __name__ == "__main__":
    main(sys.argv[1:])
