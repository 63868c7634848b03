"""Test `potluck plan` on its archive, and write the calibration that comes with Potluck.

python experiments/plan/backtest.py             # the tables
python experiments/plan/backtest.py --write     # also src/potluck/planner/calibration.json
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from potluck.planner import archive, backtest

HERE = Path(__file__).parent
TARGET = HERE.parents[1] / "src" / "potluck" / "planner" / "calibration.json"


def main(write: bool) -> None:
    found = backtest.situations(archive.read(HERE / "archive"))
    judged = backtest.seen_by_others(found)
    print(f"{len(found)} situations of {len({one.data for one in found.values()})} data sets")
    for name, row in backtest.costs(found.values()).items():
        print(name, {key: round(value, 5) for key, value in row.items()})
    for name, row in backtest.accuracies(judged).items():
        print(name, {key: round(value, 4) for key, value in row.items()})
    for name, (hits, lost) in sorted(backtest.recommendations(judged).items(), key=lambda one: -one[1][0]):
        print(f"{name:32} within a point of the best in {100 * hits:.0f} %, loses {lost:.1f} points")
    print("time to 95 % of the best", {key: round(value, 4) for key, value in backtest.times(judged).items()})
    if write:
        spec = archive.Spec.read(HERE / "archive.toml")
        made = replace(
            backtest.tested(backtest.fitted(list(found.values())), judged),
            passes=spec.passes,
            model=str(spec.settings["model.name"]),
        )
        TARGET.write_text(json.dumps(made.plain()) + "\n", encoding="utf-8")
        print(f"wrote {TARGET.name}")


if __name__ == "__main__":
    main("--write" in sys.argv[1:])
