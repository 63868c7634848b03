"""The figures of docs/methods/fedcfc_results.md: `python experiments/fedcfc/figures.py [NAME ...] [--seeds K]`.

Each row is an experiment file of this folder with a few settings changed. It prints the figures of the page. Runs are
kept in the folder `--out`: a table that was interrupted resumes there.
"""

from __future__ import annotations

import argparse
import json
import statistics
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

import potluck
from potluck import methods
from potluck.runs.build import build
from potluck.runs.experiment import override, read_toml
from potluck.runs.results import Run

HERE = Path(__file__).parent
VARIANTS = ("fbind", "favg", "fprox", "fscaf", "fgh")
# fbind without its terms: local training only
ALONE = ("method.terms.lambda_d=0.0", "method.terms.lambda_m=0.0", "method.terms.lambda_a=0.0")


class Table:
    def __init__(self, seeds: list[int], out: str) -> None:
        self.seeds, self.out = seeds, out

    def run(self, row: str, file: str, seed: int, settings: tuple[str, ...], method: str = "fedcfc") -> Run:
        """One run, or the one that was made before; an unfinished one resumes."""
        name = f"{row.replace(' ', '-')}-s{seed}"
        made = Run(Path(self.out) / name)
        if made.finished:
            return made
        if (made.folder / "experiment.toml").exists():
            return potluck.resume(made.folder)
        values = override(read_toml(HERE / f"{file}.toml"), settings)
        if method != "fedcfc":
            kept, _ = methods.load(method).suited(values["method"])
            values["method"] = {**kept, "name": method}
        values["run"] = {"seed": seed, "out": self.out, "name": name}
        return potluck.run(values)

    def row(self, row: str, file: str, *settings: str, method: str = "fedcfc") -> None:
        runs = [self.run(row, file, seed, settings, method) for seed in self.seeds]
        curves = [[e["mean"] for e in run.table("evaluations") if e["step"]] for run in runs]  # 1: the first download
        on_all = [on_all_rows(run) for run in runs]
        figures = {
            "first": [curve[0] for curve in curves],
            "last": [run.summary["accuracy"]["mean"] for run in runs],
            "gain": [curve[-1] - curve[0] for curve in curves],
            "all classes": [found["mean"] for found in on_all],
            "worst class": [found["worst"] for found in on_all],
        }
        text = "  ".join(f"{name} {_spread(values)}" for name, values in figures.items())
        settled = [value for run in runs for value in _settled(run)]
        rough, volume = 1e4 * statistics.mean(map(_roughness, curves)), _volume(runs[0])
        rest = f"roughness {rough:.2f}e-4  kB per client-round {volume:.2f}  settled {settled or '-'}"
        print(f"{row:22s} {text}  {rest}", flush=True)


def on_all_rows(run: Run) -> dict[str, Any]:
    """All personal models on the test rows of all clients: the mean over clients and classes, the mean over clients
    for the class they know least, and each client's mean over classes. Saved in the run's folder.
    """
    kept = run.folder / "everywhere.json"
    if kept.exists():
        found: dict[str, Any] = json.loads(kept.read_text())
        return found
    parts = build(run.experiment)
    parts.close()
    places = range(len(parts.federation.names))
    held = [parts.federation.materialise(place, "test") for place in places]
    x, y = (np.concatenate([rows[i] for rows in held])[::3] for i in (0, 1))
    t = None if held[0][2] is None else torch.from_numpy(np.concatenate([rows[2] for rows in held])[::3])
    right = []
    for client in parts.federation.names:
        personal = run.personal(client)
        with torch.no_grad():
            said = personal.model.logits(personal.weights, torch.from_numpy(x), t=t).argmax(-1).numpy()
        right.append([float((said == y)[y == label].mean()) for label in np.unique(y)])
    found = {"mean": float(np.mean(right)), "worst": float(np.min(np.mean(right, 0)))}
    found["clients"] = dict(zip(parts.federation.names, np.mean(right, 1).tolist(), strict=True))
    kept.write_text(json.dumps(found))
    return found


def _spread(values: list[float]) -> str:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.3f} ± {spread:.3f}"


def _roughness(curve: list[float]) -> float:
    """The variance of the change from round to round."""
    return statistics.pvariance([b - a for a, b in pairwise(curve)])


def _settled(run: Run) -> list[int]:
    rows = [json.loads(row["value"]) for row in run.table("records") if row["name"] == "settled"]
    return rows[-1:] if rows and rows[-1] else []


def _volume(run: Run) -> float:
    """Both ways, of the tasks of ordinary rounds."""
    both = [
        task["bytes_up"] + task["bytes_down"]
        for task in run.table("tasks")
        if task["program"] != "Begin" and task["outcome"] == "accepted"
    ]
    return statistics.mean(both) / 1000


# As these rows were made: pruning from the first round on, as FedCFC's section 5.1 says, and classes weighed
AS_MADE = {"lotteryfl": ("method.threshold=0.0",), "balancefl": ("method.sampling=weights",)}
ROWS = ("fbind", "alone", "favg", "fprox", "fscaf", "fgh", "lotteryfl", "balancefl")
KINDS = {"nano-33-ble-sense": 7, "nano-esp32": 1, "m4-express": 1, "stm32f303": 1}  # Table 4's ten boards, in order


def _gamma(table: Table, overlap: float, *begun: str, called: str = "") -> None:
    for row in ROWS:
        share, name = f"partition.gamma={overlap}", f"{called}{row} gamma {overlap:g}"
        if row in VARIANTS:
            table.row(name, "har", share, f"method.variant={row}", *begun)
        elif row == "alone":
            table.row(name, "har", share, *ALONE, *begun)
        else:  # no round for the first download: it is part of the first task
            table.row(name, "har", share, "stop.rounds=4", *begun, *AS_MADE[row], method=row)


def gamma_1(table: Table) -> None:
    """Table 4 and Figure 8: pre-trained, then improved together, with all classes in common."""
    _gamma(table, 1.0)


def gamma_0(table: Table) -> None:
    """The same with no class in common."""
    _gamma(table, 0.0)


def gamma_half(table: Table) -> None:
    """The same with half of the classes in common."""
    _gamma(table, 0.5)


MEMORY = ("model.init=memory", "method.recipe.lr=0.003")  # the learning rate by validation rows of seed 100


def memory_1(table: Table) -> None:
    """`gamma_1` with networks whose h starts as the identity of the state."""
    _gamma(table, 1.0, *MEMORY, called="memory ")
    pool = (
        "method.recipe.epochs=2",
        "method.recipe.clip=5.0",
        "method.pretrain.epochs=0",
    )  # all clients' rows in one place, from scratch
    table.row("memory centralised", "har", *MEMORY, *pool, method="centralised")


def memory_0(table: Table) -> None:
    """`gamma_0` with the same."""
    _gamma(table, 0.0, *MEMORY, called="memory ")


def boards(table: Table) -> None:
    """Table 4: ten boards of four kinds with heads of unlike depth, in int8; by kind, at the start and the end."""
    table.row("boards", "boards")
    place = 0
    for kind, count in KINDS.items():
        mine = slice(place, place + count)
        place += count
        begun, ended, on_all = [], [], []
        for seed in table.seeds:
            run = table.run("boards", "boards", seed, ())
            rows = run.table("accuracies")
            for found, step in ((begun, 1), (ended, max(row["step"] for row in rows))):
                by_client = {row["client"]: row["accuracy"] for row in rows if row["step"] == step}
                found.append(statistics.mean([by_client[client] for client in sorted(by_client)][mine]))
            by_client = on_all_rows(run)["clients"]
            on_all.append(statistics.mean([by_client[client] for client in sorted(by_client)][mine]))
        print(f"    {kind:20s} start {_spread(begun)}  end {_spread(ended)}  all classes {_spread(on_all)}", flush=True)


def longtail(table: Table) -> None:
    """Section 5.3: class sizes fall to a hundredth, ten clients, samples given out sorted by label."""
    for variant in ("fbind", "favg"):
        table.row(f"longtail {variant}", "longtail", f"method.variant={variant}")
    table.row("longtail alone", "longtail", *ALONE)
    table.row("longtail balancefl", "longtail", "stop.rounds=4", *AS_MADE["balancefl"], method="balancefl")


def terms(table: Table) -> None:
    """Figure 14 and the ablations of the terms, at gamma 0.5."""
    half = "partition.gamma=0.5"
    for term in ("lambda_d", "lambda_m", "lambda_a"):
        table.row(f"without {term}", "har", half, f"method.terms.{term}=0.0")
    table.row("mean of plain LUDs", "har", half, "method.unit=false")


def precision(table: Table) -> None:
    """Figure 12: four clients each in float32, float16 and int8, with and without a cluster per precision."""
    mixed = 'method.precisions=["float32","float16","int8"]'
    table.row("precision clusters", "har", mixed)
    table.row("precision together", "har", mixed, "method.precision_cluster=false")


def wires(table: Table) -> None:
    """Bytes with the gradients sent in fewer bits; the accuracies say what that costs."""
    for wire in ("float32", "float16", "int8"):
        table.row(f"fbind {wire}", "har", f"method.wire={wire}")


FIGURES = {
    f.__name__: f for f in (gamma_1, gamma_0, gamma_half, memory_1, memory_0, boards, longtail, terms, precision, wires)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(FIGURES), choices=[*FIGURES, []])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--out", default="runs/fedcfc")
    args = parser.parse_args()
    table = Table(list(range(args.first, args.first + args.seeds)), args.out)
    for name in args.names:
        print(f"# {name}", flush=True)
        FIGURES[name](table)


if __name__ == "__main__":
    main()
