"""LotteryFL on IID MNIST at the size of one small machine: `python experiments/fedcfc/lottery.py --seeds 3 --out FILE`.

Learning rate and momentum are the best on the validation rows of seed 100 after 15 rounds. Finished runs are kept.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from protocol import Kept, spread

from potluck.runs.build import build
from potluck.runs.experiment import Experiment

HERE = Path(__file__).parent
RECIPES = ((0.1, 0.0), (0.3, 0.0))  # learning rate and momentum


def carried_out(seed: int, rounds: int, recipe: tuple[float, float], part: str) -> dict[str, Any]:
    lr, momentum = recipe
    given = [
        f"run.seed={seed}",
        f"run.evaluate_on={part}",
        f"method.recipe.lr={lr}",
        f"method.recipe.momentum={momentum}",
    ]
    session = build(Experiment.read(HERE / "lottery.toml", [*given, f"stop.rounds={rounds}"]))
    curve: list[tuple[float, float]] = []
    try:
        first = session.method.start(session.weights, session.config)
        for state in session.method.server(session.fleet, first, session.config):
            found = session.evaluate(state)
            curve.append((float(found.accuracy.mean()), float(found.shared or 0.0)))
            held = [sum(bin(byte).count("1") for byte in bits.tolist()) for bits in state.held.values()]
            if state.round >= rounds:
                break
    finally:
        session.close()
    return {"curve": curve, "held": sum(held) / len(held)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    kept = Kept(args.out)
    tried = {
        recipe: kept.of(f"trial {recipe}", lambda recipe=recipe: carried_out(100, 15, recipe, "valid"))
        for recipe in RECIPES
    }
    recipe = max(tried, key=lambda one: tried[one]["curve"][-1][0])
    print("validation:", {str(one): round(found["curve"][-1][0], 4) for one, found in tried.items()}, flush=True)
    runs = [
        kept.of(f"seed {seed}", lambda seed=seed: carried_out(seed, args.rounds, recipe, "test"))
        for seed in range(args.seeds)
    ]
    for at in (9, 19, 29, args.rounds - 1):
        own, common = ([run["curve"][at][k] for run in runs] for k in (0, 1))
        print(f"after {at + 1} rounds: own {spread(own)}  common model {spread(common)}", flush=True)
    print(f"weights a client has at the end: {runs[0]['held']:.0f}")


if __name__ == "__main__":
    main()
