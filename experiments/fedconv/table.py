"""The tables of docs/methods/fedconv_results.md: experiments of this folder over Dirichlet alphas and seeds.

    python experiments/fedconv/table.py mnist --out runs/fedconv
    python experiments/fedconv/table.py mnist --rows own_layers published --alphas 0.1 --out runs/fedconv
    python experiments/fedconv/table.py mnist --rows fedconv serveralone --alphas 0.1 --set server.share=0.05

Runs that are finished in the folder are read, not repeated. `global` is the global model on all clients' test rows
together, which a small alpha deals unevenly; `even` is the same model on rows that neither a client nor the server
held, with the classes as in the whole set, at most 5,000 of them: the test part of the paper.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

import potluck
from potluck import keys
from potluck.data.federation import Federation
from potluck.data.server import subset, whole
from potluck.runs.build import model_of
from potluck.runs.deal import federation_of
from potluck.runs.experiment import Experiment
from potluck.runs.results import Run

HERE = Path(__file__).parent


def one(data: str, row: str, alpha: float, seed: int, changes: list[str], out: Path) -> Run:
    name = "-".join([data, row, f"a{alpha:g}", f"s{seed}", *changes])
    run = Run(out / name)
    if not run.finished:
        path = HERE / f"{data}_{row}.toml"
        experiment = Experiment.read(path if path.exists() else HERE / f"{row}.toml", changes).with_(
            partition={"alpha": alpha}, run={"seed": seed, "name": name, "out": str(out)}
        )
        run = potluck.run(experiment)
    return run


def spare(experiment: Experiment, most: int = 5000) -> tuple[Federation, Any, Any]:
    """The federation, and x and y of rows that neither a client nor the server had, with the classes as in the set."""
    federation = federation_of(experiment)
    group = federation.dataset.group
    parts = (federation.train_rows, federation.valid_rows, federation.test_rows)
    held = np.concatenate([rows(client) for client in range(len(federation)) for rows in parts])
    spare = np.setdiff1d(np.arange(len(federation.dataset)), held)
    if group is not None:  # nor neighbours of such rows, from the same recording
        spare = spare[~np.isin(group[spare], group[held])]
    chosen = keys.rng(experiment.run.seed, "even").permutation(spare)[:most]
    x, y, *_ = whole(subset(federation.dataset, np.sort(chosen)), experiment.data.standardise)
    return federation, x, y


def even(run: Run) -> float | None:
    """The accuracy of the global model on such rows; kept in the run's folder."""
    experiment, path = run.experiment, run.folder / "models" / "global.safetensors"
    known = run.folder / "even.json"
    if known.exists() or not path.exists():
        return float(json.loads(known.read_text())) if known.exists() else None
    federation, x, y = spare(experiment)
    model, right = model_of(experiment, federation), 0
    for at in range(0, len(y), 500):
        scores = model.logits(load_file(path), torch.from_numpy(x[at : at + 500]))
        right += int((scores.argmax(-1).numpy() == y[at : at + 500]).sum())
    known.write_text(json.dumps(right / len(y)))
    return right / len(y)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", choices=["mnist", "depth"])
    parser.add_argument("--rows", nargs="*", help="names of experiments; every DATA_*.toml unless given")
    parser.add_argument("--alphas", nargs="*", type=float, default=[0.05, 0.1, 10000])
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--set", nargs="*", default=[], help="settings changed in all of them, as table.key=value")
    parser.add_argument("--out", type=Path, default=Path("runs/fedconv"))
    asked = parser.parse_args()
    rows = asked.rows or sorted(path.stem.removeprefix(f"{asked.data}_") for path in HERE.glob(f"{asked.data}_*.toml"))
    for row in rows:
        for alpha in asked.alphas:
            runs = [one(asked.data, row, alpha, seed, asked.set, asked.out) for seed in asked.seeds]
            summaries = [run.summary for run in runs]
            found = {name: [summary["accuracy"][name] for summary in summaries] for name in ("global", "mean")}
            found["even"] = [even(run) for run in runs]
            line = {"row": row, "alpha": alpha}
            for figure, values in found.items():
                if None not in values:
                    spread = statistics.stdev(values) if len(values) > 1 else 0.0
                    line[figure] = f"{100 * statistics.mean(values):.1f} ± {100 * spread:.1f}"
                    line[f"{figure} by seed"] = [round(100 * value, 1) for value in values]
            line["bytes_up"] = summaries[0]["bytes"]["up"]
            line["seconds"] = round(sum(summary["wall_seconds"] for summary in summaries))
            print(json.dumps(line, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
