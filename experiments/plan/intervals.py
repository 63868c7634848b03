"""How often another seed's time and energy are in the 80 % interval of three dry runs.

    python experiments/plan/intervals.py

Dry runs cost what real runs cost (tests/planner/test_dry.py), so dry runs with ten other seeds judge.
"""

from __future__ import annotations

import numpy as np

from potluck.planner.costs import figures
from potluck.planner.dry import dry_run
from potluck.planner.interval import Interval
from potluck.runs import compare_plan

FLEETS = ("mixed", "phones", "boards")
JUDGES = 10


def main() -> None:
    inside: dict[str, list[bool]] = {"seconds": [], "joules": []}
    for fleet in FLEETS:
        for method in ("fedavg", "fedbuff"):
            values = {"data": {"source": "made"}, "fleet": {"devices": fleet}, "budget": {"local_passes": 5}}
            settings = ["method.recipe.epochs=1", "method.recipe.batch=4", "model.name=softmax"]
            experiment = compare_plan.plan(values, [method], 1, settings).runs[0].experiment
            found = []
            with dry_run(experiment) as (_, first):
                pass
            for seed in range(1000, 1003 + JUDGES):
                with dry_run(experiment.with_(run={"seed": seed}, partition={"seed": 0}), like=first) as (run, session):
                    one = figures(run, session)
                found.append((one.seconds, one.joules.total))
            for name, values_of in zip(inside, np.array(found).T, strict=True):
                around = Interval.of(values_of[:3].tolist())
                held = [around.holds(value) for value in values_of[3:].tolist()]
                inside[name] += held
                width = ((around.high or 0.0) - (around.low or 0.0)) / around.value
                print(f"{fleet} {method} {name}: {sum(held)} of {JUDGES}, width {100 * width:.1f} %", flush=True)
    print({name: round(float(np.mean(held)), 3) for name, held in inside.items()})


if __name__ == "__main__":
    main()
