"""Centaur at the published hand-over share beside AP training as released and as printed, all tuned alike.

    python experiments/centaur/shares.py uci_har [--model mlp] [--seeds 5] [--tuning 2] [--out runs/centaur]

Every row gets the same grid of learning rates. The one with the highest accuracy on validation rows, over tuning seeds
that are not used again, is the one of the table. Test rows are read for the chosen rate only. One line of JSON per run
is added to OUT/shares_SET_MODEL.jsonl; runs that are there are not made again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from figures import measured
from scipy import stats

SHARE = "method.selection.hand_over"
ROWS: dict[str, tuple[bool, list[str]]] = {  # name -> whether a round of its own is a pair of rounds, settings
    "centaur, first (published share)": (True, []),
    "centaur, chosen before encoding": (True, ["method.selection.encode=kept"]),
    "centaur, any epoch's choice": (True, [f"{SHARE}=any"]),
    "centaur, all, redrawn (released)": (True, [f"{SHARE}=all", "method.selection.redraw=true"]),
    "ap, selected quarter": (False, ["method.name=ap", "method.samples=selected"]),
    "ap, redrawn quarter (released)": (False, ["method.name=ap", "method.samples=redrawn"]),
    "ap, everything (printed)": (False, ["method.name=ap"]),
    "ucd": (False, ["method.name=ucd"]),
}
MODELS = {  # model -> the file for each set, pairs of rounds, learning rates
    "mlp": ({"uci_har": "study", "motionsense": "study"}, 16, (0.01, 0.03, 0.1)),
    "convnet": ({"uci_har": "uci_har", "motionsense": "motionsense"}, 12, (0.01,)),  # the published one for everybody
}
TUNING = 100  # the first tuning seed


def settings(row: str, source: str, model: str, rate: float, pairs: int) -> list[str]:
    twice, own = ROWS[row]
    drift = ["method.encoder.batch_norm=train"] if row == "ucd" and model == "convnet" else []
    return [*own, *drift, f"data.source={source}", f"method.recipe.lr={rate}", f"stop.rounds={pairs * (1 + twice)}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", choices=("uci_har", "motionsense"))
    parser.add_argument("--model", choices=MODELS, default="mlp")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tuning", type=int, default=2, help="tuning seeds")
    parser.add_argument("--rates", type=float, nargs="*", help="learning rates to choose from")
    parser.add_argument("--only", nargs="*", default=[""], help="rows whose names begin so")
    parser.add_argument("--samples", type=int, default=0, help="rows of each client; 0: all")
    parser.add_argument("--out", type=Path, default=Path("runs/centaur"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    files, pairs, rates = MODELS[asked.model]
    rates = tuple(asked.rates or rates)
    rows = [row for row in ROWS if row.startswith(tuple(asked.only))]
    few = [f"partition.samples={asked.samples}"] if asked.samples else []
    path = asked.out / f"shares_{asked.source}_{asked.model}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    known = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def made(row: str, rate: float, seed: int, check: bool) -> dict[str, Any]:
        for one in known:
            if (one["row"], one["rate"], one["seed"]) == (row, rate, seed):
                return one
        values = [*settings(row, asked.source, asked.model, rate, pairs), *few]
        found = {"rate": rate, **measured(row, files[asked.source], values, seed, asked.out, check)}
        known.append(found)
        with path.open("a") as lines:
            lines.write(json.dumps(found) + "\n")
        said = f"validation {found['valid']:.4f}" if check else f"test {found['last']:.4f}"
        print(f"{row}, lr {rate}, seed {seed}: {said} ({found['cpu']:.0f} s of one core)", flush=True)
        return found

    chosen = {}
    for row in rows:
        seeds = range(TUNING, TUNING + asked.tuning)
        if len(rates) == 1:
            chosen[row] = rates[0]
            continue
        scores = {rate: np.mean([made(row, rate, seed, True)["valid"] for seed in seeds]) for rate in rates}
        chosen[row] = max(scores, key=lambda rate: scores[rate])
        print(f"{row}: " + ", ".join(f"lr {rate} {score:.4f}" for rate, score in scores.items()), flush=True)
    final = {row: [] for row in rows}  # type: dict[str, list[dict[str, Any]]]
    for seed in range(asked.seeds):
        for row in rows:
            final[row].append(made(row, chosen[row], seed, False))
    first = final[rows[0]]
    for row, runs in final.items():
        gap = [100 * (a["last"] - b["last"]) for a, b in zip(first, runs, strict=True)]
        print(f"{row:34s} lr {chosen[row]:<5} {spread([100 * r['last'] for r in runs])} %"
              f"  handed over {100 * np.mean([r['records']['share_handed'] for r in runs]):5.1f} %"
              f"  AP steps {np.mean([r['records']['ap_steps'] for r in runs]):8.0f}"
              f"  device steps {np.mean([r['records']['steps'] for r in runs]):8.0f}"
              f"  device J {np.mean([r['costs']['device']['joules'] for r in runs]):8.3g}"
              f"  AP J {np.mean([r['costs']['ap']['joules'] for r in runs]):8.3g}"
              f"  AP s {np.mean([r['costs']['ap']['seconds'] for r in runs]):8.3g}"
              + ("" if row == rows[0] else f"  {rows[0].partition(',')[0]} ahead by {interval(gap)}"))  # fmt: skip


def spread(values: list[float]) -> str:
    return f"{np.mean(values):.1f} ± {np.std(values, ddof=1) if len(values) > 1 else 0.0:.1f}"


def interval(values: list[float]) -> str:
    """Mean of the differences by seed and their 95 % t interval."""
    if len(values) < 2:
        return f"{values[0]:+.1f}"
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    return f"{np.mean(values):+.1f} ({np.mean(values) - half:+.1f} to {np.mean(values) + half:+.1f})"


if __name__ == "__main__":
    main()
