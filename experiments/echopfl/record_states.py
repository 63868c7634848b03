"""Write the states that EchoPFL's broadcast predictor is pre-trained on: 1,200 aggregations of recorded runs.

    python experiments/echopfl/record_states.py src/potluck/methods/parts/echopfl/recorded_states.csv

One line per aggregation: the cluster, how far its model moved (change) and how far it was then from the model its
members last received (away). The runs broadcast by the parameter-free rule `ewma`; they use the synthetic data set
`made`, so that no state comes from data a method is later judged on.
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile

import potluck

STATES = 1200
RUNS = 4


def states(seed: int, folder: str) -> list[tuple[str, float, float]]:
    run = potluck.run(
        {
            "data": {"source": "made"},
            "partition": {"kind": "dirichlet", "clients": 12, "alpha": 0.5},
            "fleet": {"devices": "echopfl"},
            "method": {"name": "echopfl", "broadcast.predictor": "ewma"},
            "stop": {"rounds": STATES // RUNS // 12 + 1},
            "run": {"seed": seed, "out": folder, "evaluate_every": 1000},
        }
    )
    pushes = [json.loads(row["detail"]) for row in run.table("events") if row["kind"] == "push"]
    return [(f"{seed}.{push['cluster']}", push["change"], push["away"]) for push in pushes]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for seed in range(RUNS) for row in states(seed, folder)[: STATES // RUNS]]
    with open(sys.argv[1], "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("cluster", "change", "away"))
        writer.writerows((cluster, f"{change:.6g}", f"{away:.6g}") for cluster, change, away in rows)


if __name__ == "__main__":
    main()
