"""The federated figures of docs/methods/fedcfc.md: `python experiments/fedcfc/figures.py [NAME ...] [--seeds K]`.

Each row is an experiment file of this folder with a few settings changed. Finished runs are found again in the folder
`--out`, so that a table cut short can be gone on with; what is printed is what the page says.
"""

from __future__ import annotations

import argparse
import json
import statistics
from itertools import pairwise
from pathlib import Path

import potluck
from potluck.runs.compare import settings_of, suited
from potluck.runs.experiment import override, read_toml
from potluck.runs.results import Run

HERE = Path(__file__).parent
VARIANTS = ("fbind", "favg", "fprox", "fscaf", "fgh")
# fbind without its terms: everybody alone
ALONE = ("method.lambda_d=0.0", "method.lambda_m=0.0", "method.lambda_a=0.0")


class Table:
    def __init__(self, seeds: list[int], out: str) -> None:
        self.seeds, self.out = seeds, out

    def run(self, row: str, file: str, seed: int, settings: tuple[str, ...], method: str = "fedcfc") -> Run:
        """One run, or the one that was made before, to its end."""
        name = f"{row.replace(' ', '-')}-s{seed}"
        made = Run(Path(self.out) / name)
        if made.finished:
            return made
        if (made.folder / "experiment.toml").exists():
            return potluck.resume(made.folder)
        values = override(read_toml(HERE / f"{file}.toml"), settings)
        if method != "fedcfc":
            kept, _ = suited(values["method"], settings_of(method))
            values["method"] = {**kept, "name": method}
        values["run"] = {"seed": seed, "out": self.out, "name": name}
        return potluck.run(values)

    def row(self, row: str, file: str, *settings: str, method: str = "fedcfc") -> None:
        runs = [self.run(row, file, seed, settings, method) for seed in self.seeds]
        curves = [[e["mean"] for e in run.table("evaluations")] for run in runs]
        figures = {
            "first": [curve[0] for curve in curves],
            "last": [run.summary["accuracy"]["mean"] for run in runs],
            "gain": [curve[-1] - curve[0] for curve in curves],
            "worst client": [run.summary["accuracy"]["worst"] for run in runs],
        }
        text = "  ".join(f"{name} {_spread(values)}" for name, values in figures.items())
        settled = [value for run in runs for value in _settled(run)]
        rough, volume = 1e4 * statistics.mean(map(_roughness, curves)), _volume(runs[0])
        rest = f"roughness {rough:.2f}e-4  kB per client-round {volume:.2f}  settled {settled or '-'}"
        print(f"{row:22s} {text}  {rest}", flush=True)


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


def gamma(table: Table) -> None:
    """Table 4 and Figure 8: pre-trained, then improved together, with all classes in common and with none."""
    for variant in ("fbind", "alone", "favg", "fscaf", "fprox", "fgh"):
        own = ALONE if variant == "alone" else (f"method.variant={variant}",)
        for overlap in (1.0, 0.0):
            table.row(f"{variant} gamma {overlap:g}", "har", f"partition.gamma={overlap}", *own)


def half(table: Table) -> None:
    """The same with half of the classes in common."""
    for variant in ("fbind", "favg"):
        table.row(f"{variant} gamma 0.5", "har", "partition.gamma=0.5", f"method.variant={variant}")


def baselines(table: Table) -> None:
    """Whole models averaged, on the same rows, without pre-training: the methods have none."""
    fresh = ("method.pretrain=0",)
    for overlap in (1.0, 0.0):
        share = f"partition.gamma={overlap}"
        table.row(f"fresh fbind gamma {overlap:g}", "har", share, *fresh)
        table.row(f"fresh lotteryfl gamma {overlap:g}", "har", share, *fresh, method="lotteryfl")
    table.row("fresh centralised", "har", *fresh, "method.clip=5.0", method="centralised")


def longtail(table: Table) -> None:
    """Section 5.3: class sizes fall to a hundredth, ten clients, rows dealt sorted by label."""
    table.row("longtail fbind", "longtail")
    table.row("longtail favg", "longtail", "method.variant=favg")
    table.row("longtail alone", "longtail", *ALONE)
    table.row("longtail balancefl", "longtail", "method.pretrain=0", method="balancefl")


def terms(table: Table) -> None:
    """Figure 14 and the ablations of the terms, at gamma 0.5."""
    half = "partition.gamma=0.5"
    for term in ("lambda_d", "lambda_m", "lambda_a"):
        table.row(f"without {term}", "har", half, f"method.{term}=0.0")
    table.row("mean of plain LUDs", "har", half, "method.unit=false")


def precision(table: Table) -> None:
    """Figure 12: four clients each in float32, float16 and int8, with and without a cluster per precision."""
    mixed = 'method.precisions=["float32","float16","int8"]'
    table.row("precision clusters", "har", mixed)
    table.row("precision together", "har", mixed, "method.precision_cluster=false")


def volume(table: Table) -> None:
    """Table 3: bytes per round of a CFC with a wide backbone, as the published volumes imply; two rounds tell."""
    wide = ("model.backbone=192", "stop.rounds=3", "method.pretrain=1", "partition.test_share=0.9")
    once = Table(table.seeds[:1], table.out)
    for variant in VARIANTS:
        once.row(f"wide {variant}", "har", *wide, f"method.variant={variant}")
    for wire in ("float16", "int8"):
        once.row(f"wide fbind {wire}", "har", *wide, f"method.wire={wire}")


FIGURES = {f.__name__: f for f in (gamma, volume, half, baselines, longtail, terms, precision)}


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
