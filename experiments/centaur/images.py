"""Centaur on small images with pre-trained encoders: Figs. 5, 6, 7 and 9 in sizes that run on one core.

    python experiments/centaur/images.py {encoders,unlike} [--seeds 3] [--out runs/centaur]

The encoder is trained first, on five classes of CIFAR-10 that no client has (`potluck pretrain`). Each method gets the
learning rate with the best accuracy on validation rows of a tuning seed, at the small classifier behind this encoder.
Differences are taken seed by seed and have 95 % intervals. One line of JSON per run is added to OUT/images.jsonl; runs
that are there are not made again.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from figures import measured, until
from shares import interval, spread

from potluck.runs.pretrain import pretrain

METHODS = {  # name -> settings; a round of Centaur's is half a pair
    "centaur": [],
    "centaur, chosen before encoding": ["method.selection.encode=kept"],
    "centaur, all, redrawn (released)": ["method.selection.hand_over=all", "method.selection.redraw=true"],
    "ap, redrawn quarter (released)": ["method.name=ap", "method.samples=redrawn"],
    "ap, everything": ["method.name=ap"],
    "ucd": ["method.name=ucd"],
}
RATES, TUNING = (0.01, 0.03), 100
COMPACT = {"name": "compact", "width": 8, "dropout": 0.0}


def cells(table: str, encoder: Path) -> list[tuple[str, list[str], list[str]]]:
    """Name, settings and methods of each cell of a table."""
    given, every = f"model.encoder={encoder}", list(METHODS)
    if table == "encoders":
        sizes = [
            (f"pre-trained, {size}", [given, f"model.classifier={size}"], every)
            for size in ("small", "medium", "large")
        ]
        return [*sizes, ("random, small", [], every)]
    return [(f"alpha {alpha:g}", [given, f"partition.alpha={alpha}"], every) for alpha in (0.001, 0.1, 1.0, 1000.0)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=("encoders", "unlike"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--only", nargs="*", default=[""], help="methods whose names begin so")
    parser.add_argument("--cells", nargs="*", default=[""], help="cells whose names begin so")
    parser.add_argument("--out", type=Path, default=Path("runs/centaur"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    encoder, path = (asked.out / "five.safetensors").absolute(), asked.out / "images.jsonl"
    asked.out.mkdir(parents=True, exist_ok=True)
    if not encoder.exists():
        done = pretrain(encoder, "experiments.centaur.halves:first", COMPACT, epochs=6, batch=32, lr=0.05)
        print(f"encoder: {done.encoder} numbers, accuracy with its classifier {done.accuracy:.3f}", flush=True)
    known = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def made(
        cell: str, settings: list[str], method: str, rate: float, seed: int, check: bool = False
    ) -> dict[str, Any]:
        row = f"{cell}: {method}"
        for one in known:
            if (one["row"], one["rate"], one["seed"]) == (row, rate, seed):
                return one
        rounds = asked.pairs * (2 if method.startswith("centaur") else 1)
        values = [*METHODS[method], *settings, f"stop.rounds={rounds}", f"method.recipe.lr={rate}",
                  f"run.evaluate_every={rounds // 6}"]  # fmt: skip
        found = {"rate": rate, **measured(row, "images", values, seed, asked.out, check)}
        known.append(found)
        with path.open("a") as lines:
            lines.write(json.dumps(found) + "\n")
        return found

    given, chosen = [f"model.encoder={encoder}", "model.classifier=small"], {}
    asked_for = [method for method in METHODS if method.startswith(tuple(asked.only))]
    for method in asked_for:
        scores = {rate: made("tuning", given, method, rate, TUNING, True)["valid"] for rate in RATES}
        chosen[method] = max(scores, key=lambda rate: scores[rate])
        print(f"{method}: validation {scores}", flush=True)
    for cell, settings, methods in cells(asked.table, encoder):
        if not cell.startswith(tuple(asked.cells)):
            continue
        runs = {
            m: [made(cell, settings, m, chosen[m], seed) for seed in range(asked.seeds)]
            for m in methods
            if m in asked_for
        }
        goal = 0.95 * min(np.mean([r["final"] for r in rows]) for rows in runs.values())
        for method, rows in runs.items():
            print(
                f"{cell:22s} {method:32s} lr {chosen[method]:<5} {spread([100 * r['final'] for r in rows])} %"
                f"  handed over {100 * np.mean([r['records']['share_handed'] for r in rows]):5.1f} %"
                f"  AP steps {np.mean([r['records']['ap_steps'] for r in rows]):7.0f}"
                f"  until {100 * goal:.0f} %: device {reached(rows, goal, 'device')}; AP {reached(rows, goal, 'ap')}",
                flush=True,
            )
        for mine, theirs in itertools.combinations(runs, 2) if asked.seeds > 1 else ():
            gaps = [100 * (a["final"] - b["final"]) for a, b in zip(runs[mine], runs[theirs], strict=True)]
            print(f"{cell}: {mine} ahead of {theirs} by {interval(gaps)}", flush=True)


def reached(rows: list[dict[str, Any]], goal: float, who: str) -> str:
    """MACs, bytes and seconds until the goal, means over the seeds that reached it."""
    found = [[until(row, goal, who, what) for what in ("macs", "bytes", "seconds")] for row in rows]
    some = np.array([one for one in found if None not in one], dtype=float)
    if not len(some):
        return "not reached"
    macs, size, seconds = some.mean(0)
    return f"{macs / 1e9:.2f} GMAC, {size / 1e6:.1f} MB, {seconds:.0f} s"


if __name__ == "__main__":
    main()
