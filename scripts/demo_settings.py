"""Choose the demo's settings on rows set aside from training, never on test rows, and print what to put into
`potluck.demo.SETTINGS`:

    python scripts/demo_settings.py            # those the demo has; about a quarter of an hour on one core
    python scripts/demo_settings.py NAME...    # some of them

Every method gets five candidates for its step size; where a second setting decides how a method behaves, its candidates
are tried too. The winner has the highest mean validation accuracy over two seeds.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from pathlib import Path

from potluck import demo
from potluck.cli.progress.line import Quiet
from potluck.runs import compare

RATES = {"recipe.lr": [0.02, 0.05, 0.1, 0.2, 0.5]}
MORE = {
    "clusterfl": {"coupling": [0.3, 0.5, 0.8]},
    "echopfl": {"clusters.count": [2, 4]},
    "centaur": {"selection.beta": [1.0, 3.0]},
    "fedcfc": {"recipe.lr": [0.005, 0.01, 0.02, 0.05, 0.1]},  # through many steps of time gradients are large
    "fedconv": {"recipe.lr": [0.001, 0.002, 0.005, 0.01, 0.02]},  # Adam's rates are smaller than SGD's
}
SEEDS = 2


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
    with tempfile.TemporaryDirectory() as folder:
        runs = compare.carry_out(demo.trial(method, settings, SEEDS), Path(folder), Quiet())
        return sum(run.summary["accuracy"]["mean"] for run in runs) / len(runs)


if __name__ == "__main__":
    main(sys.argv[1:])
