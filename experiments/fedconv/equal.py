"""All methods with sub-models at equal server rows; the tables of docs/methods/fedconv_results.md.

    python experiments/fedconv/equal.py mnist --out runs/equal
    python experiments/fedconv/equal.py cifar10 --alphas 0.1 --rows fedconv heterofl_server

`_rows` in a name means that the first model is trained on the server rows (`server.pretrain`), `_server` that the
method's model also takes epochs on them after every round (`server.epochs`). Both choose epochs on a fifth of the rows.
The epochs of Serveralone are as many. `_time` is `_server` with as many epochs as FedConv's tuning costs by the
server's clock, and `fedconv_few` tunes for no longer than the nine epochs of `_server` take. Finished runs in the
folder are read, not repeated. The last lines are paired differences to FedConv, or another row (`--beside`), with 95 %
intervals (Student's t, by seeds). table.py says what `even` is. CIFAR-10 and WiAR are small here: 240 and 192 rows at
the server.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import potluck
from potluck.runs.experiment import Experiment
from potluck.runs.results import Run

sys.path.insert(0, str(Path(__file__).parent))
from table import even

EPOCHS = {"mnist": 9, "depth": 9, "cifar10": 9, "wiar": 9}
TIMED = {"mnist": 42, "depth": 42}  # epochs after which the server's clock is where FedConv's tuning leaves it
BASE: dict[str, dict[str, Any]] = {
    "mnist": {"data.source": "mnist", "server.share": 0.004, "partition.samples": 100},
    "cifar10": {"data.source": "cifar10", "server.share": 0.01, "partition.samples": 100},
    "depth": {"data.source": "clusterfl_depth", "server.share": 0.03, "partition.samples": 60, "model.norm": "batch"},
    "wiar": {
        "data.source": "wiar", "data.standardise": "global", "server.share": 0.4, "server.pretrain": 40,
        "partition.clients": 10, "partition.samples": 12, "model.name": "cnn1d",
    },
}  # fmt: skip
FEDCONV = {
    "recipe.epochs": 2, "kernels.compress_epochs": 12, "kernels.dilate_epochs": 6, "kernels.per": "width",
    "kernels.look": 3, "mix.epochs": 10, "mix.lr": 0.01,
}  # fmt: skip
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "fedconv": ("fedconv", FEDCONV),
    "fedconv_long": ("fedconv", FEDCONV),  # for longer tuning beside `fedconv` in sweeps.py
    "fedconv_mean": ("fedconv", {**FEDCONV, "mix.agg": "mean"}),
    "fedconv_slices": (
        "fedconv",
        {**FEDCONV, "kernels.compress_epochs": 0, "kernels.dilate_epochs": 0, "mix.agg": "mean"},
    ),
    "fedconv_weights": ("fedconv", {**FEDCONV, "kernels.compress_epochs": 0, "kernels.dilate_epochs": 0}),
    "fedconv_few": (
        "fedconv",
        {**FEDCONV, "kernels.compress_epochs": 4, "kernels.dilate_epochs": 1, "mix.agg": "mean"},
    ),
    "fedconv_models": ("fedconv", {**FEDCONV, "mix.on": "models"}),
    "serveralone": ("serveralone", {}),
    "standalone": ("standalone", {"recipe.epochs": 2}),
    "fedmd": ("fedmd", {"recipe.epochs": 2}),
    "heterofl": ("heterofl", {"recipe.epochs": 2, "label_rows": True}),
    "heterofl_plain": ("heterofl", {"recipe.epochs": 2, "masked": False, "scaler": False, "static_norm": False}),
    "fedrolex": ("fedrolex", {"recipe.epochs": 2}),
    "hermes": ("hermes", {"recipe.epochs": 2}),
    "tailorfl": ("tailorfl", {"recipe.epochs": 2}),
}
DEFAULT = (
    "fedconv", "fedconv_mean", "serveralone_rows", "standalone_rows", "fedmd_rows", "heterofl_server",
    "heterofl_plain_server", "fedrolex_server", "hermes_server", "tailorfl_server", "fedconv_server", "heterofl",
    "fedrolex", "hermes", "tailorfl", "standalone", "heterofl_rows",
)  # fmt: skip
T = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # 97.5 % points of Student's t for so many seeds


def experiment(data: str, row: str, alpha: float, seed: int, changes: list[str], out: Path) -> Experiment:
    named, _, resource = row.rpartition("_")
    name = named if resource in ("rows", "server", "time") else row
    method, settings = ROWS[name]
    values: dict[str, Any] = {
        "data.standardise": "none", "partition.kind": "dirichlet", "partition.clients": 20, "model.name": "cnn",
        "fleet.devices": "fedconv", "stop.rounds": 4, "run.evaluate_every": 4, "wire.clip": 0, "partition.alpha": alpha,
        "server.optimiser": "adam", "server.validate_share": 0.2, "server.pretrain_lr": 1e-3, "server.epochs_lr": 1e-3,
        **BASE[data], "method.name": method, **{f"method.{key}": value for key, value in settings.items()},
    }  # fmt: skip
    values |= {} if method == "serveralone" else {"method.sizes.assign": "dealt"}
    if name.startswith("fedconv") or resource in ("rows", "server", "time"):
        values.setdefault("server.pretrain", 20)
    else:
        values.pop("server.pretrain", None)
    if resource in ("server", "time"):
        values["server.epochs"] = (EPOCHS if resource == "server" else TIMED)[data]
    if method == "serveralone":
        values["method.recipe.epochs"] = EPOCHS[data]
    for change in changes:
        key, _, text = change.partition("=")
        if text:
            values[key] = tomllib.loads(f"value = {text}")["value"]
        else:
            values.pop(key)
    sections: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        section, _, key = key.partition(".")
        sections.setdefault(section, {})[key] = value
    folder = "-".join([data, row, f"a{alpha:g}", f"s{seed}", *changes])
    return Experiment.of(sections).with_(run={"seed": seed, "name": folder, "out": str(out)})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", choices=list(BASE))
    parser.add_argument("--rows", nargs="*", default=list(DEFAULT))
    parser.add_argument("--alphas", nargs="*", type=float, default=[0.1, 1.0])
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument(
        "--set", nargs="*", default=[], help="settings changed in all of them, as table.key=value; none without a value"
    )
    parser.add_argument("--beside", default="fedconv", help="the row that all others are compared with")
    parser.add_argument("--out", type=Path, default=Path("runs/equal"))
    asked = parser.parse_args()
    for alpha in asked.alphas:
        found: dict[str, dict[str, list[float]]] = {}
        for row in asked.rows:
            runs, began = [], time.process_time()
            for seed in asked.seeds:
                wanted = experiment(asked.data, row, alpha, seed, asked.set, asked.out)
                run = Run(asked.out / str(wanted.run.name))
                runs.append(run if run.finished else potluck.run(wanted))
            own = [run.summary["accuracy"]["mean"] for run in runs]
            score = [even(run) for run in runs]
            found[row] = {"own": own} | ({} if None in score else {"even": [one or 0.0 for one in score]})
            line = {name: f"{100 * statistics.mean(v):.1f} ± {100 * spread(v):.1f}" for name, v in found[row].items()}
            by_seed = {f"{name} by seed": [round(100 * one, 1) for one in v] for name, v in found[row].items()}
            costs = {
                "bytes_up": runs[0].summary["bytes"]["up"],
                "server_seconds": round(server_seconds(runs[0]), 2),
                "processor": round(time.process_time() - began, 1),
            }
            print(json.dumps({"data": asked.data, "alpha": alpha, "row": row} | line | by_seed | costs), flush=True)
        for row, values in found.items():
            for name, mine in found.get(asked.beside, {}).items():
                if row != asked.beside and name in values and len(mine) in T:
                    gaps = [100 * (a - b) for a, b in zip(mine, values[name], strict=True)]
                    wide = T[len(gaps)] * statistics.stdev(gaps) / len(gaps) ** 0.5
                    gap = f"{asked.beside} - {row} = {statistics.mean(gaps):+.1f} ± {wide:.1f}"
                    print(f"alpha {alpha:g} {name}: {gap}", flush=True)


def spread(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def server_seconds(run: Run) -> float:
    """What the server's own work took, of virtual time, in the whole run."""
    told = [row["detail"].rpartition(": ")[2] for row in run.table("events") if row["kind"] == "server"]
    return sum(float(text.removesuffix(" s")) for text in told if text.endswith(" s"))


if __name__ == "__main__":
    main()
