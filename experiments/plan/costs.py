"""How far dry runs are from real runs: one of each for every method, on `made` and the mixed fleet.

python experiments/plan/costs.py
python experiments/plan/costs.py echopfl centaur
"""

from __future__ import annotations

import sys
import tempfile

from potluck.errors import BadInput
from potluck.methods import METHODS
from potluck.planner.dry import dry_run
from potluck.planner.plan import foreseen
from potluck.runs import compare_plan, drive

VALUES = {"data": {"source": "made"}, "fleet": {"devices": "mixed"}, "run": {"evaluate_every": 1000}}


def main(names: list[str]) -> None:
    exact = []
    for name in names or METHODS:
        try:
            experiment = compare_plan.plan(VALUES, [name], 1, ["method.recipe.epochs=1"]).runs[0].experiment
            with dry_run(foreseen(name, experiment)[0]) as (run, _):
                dry = run.summary
            with tempfile.TemporaryDirectory() as folder:
                real = drive.start(experiment.with_(run={"out": folder})).summary
        except BadInput as error:
            print(f"{name}: left out: {error}", flush=True)
            continue
        moved, foretold = (sum(one["bytes"].values()) for one in (real, dry))
        time, joules = (
            100 * (d / r - 1)
            for d, r in (
                (dry["virtual_seconds"], real["virtual_seconds"]),
                (dry["energy"]["total"], real["energy"]["total"]),
            )
        )
        if foretold == moved and dry["virtual_seconds"] == real["virtual_seconds"]:
            exact.append(name)
        print(
            f"{name}: bytes {100 * (foretold / moved - 1):+.2f} %, time {time:+.2f} %, joules {joules:+.2f} %",
            flush=True,
        )
    print(f"{len(exact)} exact: {' '.join(exact)}")


if __name__ == "__main__":
    main(sys.argv[1:])
