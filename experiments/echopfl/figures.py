"""The figures of docs/methods/echopfl.md: runs what is asked for and writes one JSON line per run.

    python experiments/echopfl/figures.py har --seeds 5 --out runs/echopfl
    python experiments/echopfl/figures.py preferences drift scenario_d --seeds 5 --out runs/echopfl
    python experiments/echopfl/figures.py --table runs/echopfl

A run that is there already is not made again, so that the script can be stopped and started anew.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

import potluck
from potluck.runs.experiment import Experiment
from potluck.runs.results import Run

HERE = Path("experiments/echopfl")
ECHO: dict[str, Any] = {"name": "echopfl"}
ROWS: dict[str, dict[str, dict[str, Any]]] = {
    "har": {
        "fedavg": {"name": "fedavg"},
        "clusterfl": {"name": "clusterfl"},
        "echopfl": ECHO,
        "echopfl-gain4": {**ECHO, "c_gain": 4.0},
        "fedasync": {"name": "fedasync"},
        "fedsea": {"name": "fedsea"},
        "oort": {"name": "oort"},
        "fedbuff": {"name": "fedbuff"},
        "local": {"name": "local"},
    },
    "preferences": {
        "fedavg": {"name": "fedavg"},
        "echopfl": ECHO,
        "echopfl-no-broadcast": {**ECHO, "predictor": "never"},
        "echopfl-no-clusters": {**ECHO, "clusters": 1, "refine": False},
    },
    "two_classes": {
        "fedavg": {"name": "fedavg"},
        "echopfl": ECHO,
        "echopfl-no-clusters": {**ECHO, "clusters": 1, "refine": False},
    },
    "choices": {
        "ewma": {**ECHO, "predictor": "ewma"},
        "text": {**ECHO, "predictor": "text"},
        "mix": {**ECHO, "merge_rule": "mix"},
        "restart": {**ECHO, "on_broadcast": "restart"},
        "next": {**ECHO, "on_broadcast": "next"},
        "clusters-4": {**ECHO, "clusters": 4},
        "clusters-8": {**ECHO, "clusters": 8},
    },
    "drift": {"echopfl": ECHO, "fedavg": {"name": "fedavg"}},
    "scenario_a": {"fedavg": {"name": "fedavg"}, "echopfl": ECHO, "local": {"name": "local"}},
    "scenario_b": {"fedavg": {"name": "fedavg"}, "echopfl": ECHO, "local": {"name": "local"}},
    "scenario_c": {"fedavg": {"name": "fedavg"}, "echopfl": ECHO, "local": {"name": "local"}},
    "scenario_d": {"fedavg": {"name": "fedavg"}, "echopfl": ECHO, "local": {"name": "local"}},
}
FILES = {"two_classes": "har_two_classes", "choices": "preferences"}


def made(figure: str, row: str, seed: int, out: Path) -> Run:
    folder = out / f"{figure}-{row}-s{seed}"
    if (folder / "summary.json").exists():
        return Run(folder)
    values = Experiment.read(HERE / f"{FILES.get(figure, figure)}.toml").model_dump()
    values["method"] = ROWS[figure][row]
    values["run"] |= {"seed": seed, "out": str(out), "name": folder.name}
    return potluck.run(values)


def facts(run: Run) -> dict[str, Any]:
    """What the table needs of one run."""
    summary = run.summary
    moments = {row["step"]: row for row in run.table("steps")}
    curve = [
        (
            moments[row["step"]]["virtual"],
            row["mean"],
            moments[row["step"]]["bytes_up"] + moments[row["step"]]["bytes_down"],
        )
        for row in run.table("evaluations")
    ]
    device = {row["client"]: row["device"] for row in run.table("clients")}
    slow = [accuracy for client, accuracy in summary["per_client"].items() if "pi-4" in device[client]]
    tasks = run.table("tasks")
    end = summary["virtual_seconds"]
    up, _ = np.histogram([t["arrived"] for t in tasks], np.linspace(0, end, 61), weights=[t["bytes_up"] for t in tasks])
    records = {row["name"]: json.loads(row["value"]) for row in run.table("records")}
    return {
        "run": run.name,
        "accuracy": summary["accuracy"]["mean"],
        "worst_tenth": summary["accuracy"]["worst_tenth"],
        "slow": mean(slow) if slow else None,
        "seconds": end,
        "up": summary["bytes"]["up"],
        "down": summary["bytes"]["down"],
        "uploads": sum(t["bytes_up"] > 0 for t in tasks),
        "downloads": sum(t["bytes_down"] > 0 for t in tasks),
        "peak_up": float(up.max()),
        "stack": summary["mean_stack"],
        "events": Counter(row["kind"] for row in run.table("events")),
        "records": {name: records[name] for name in ("staleness_mean", "staleness_max", "branches") if name in records},
        "curve": curve,
    }


def reached(found: dict[str, Any], target: float) -> tuple[float, float] | None:
    """Virtual seconds and bytes until the mean accuracy was reached."""
    return next(((at, nbytes) for at, accuracy, nbytes in found["curve"] if accuracy >= target), None)


def recovery(run: Run) -> list[int]:
    """For each client whose data changed, its own pushes until it had 95 % of its accuracy from before again."""
    from potluck.runs.build import build

    parts = build(run.experiment)
    (moment,) = run.experiment.drift.at[:1]
    names = [parts.federation.names[i] for i in parts.evaluator._drift.concerned] if parts.evaluator._drift else []
    at = {row["step"]: row["virtual"] for row in run.table("steps")}
    found = []
    for client in names:
        seen = [(at[r["step"]], r["accuracy"]) for r in run.table("accuracies") if r["client"] == client]
        before = [accuracy for when, accuracy in seen if when < moment][-1]
        back = next((when for when, accuracy in seen if when > moment and accuracy >= 0.95 * before), None)
        pushes = [t["arrived"] for t in run.table("tasks") if t["client"] == client and t["outcome"] == "accepted"]
        found.append(sum(moment < push <= (back or float("inf")) for push in pushes) if back else -1)
    return found


def table(out: Path) -> None:
    """Means over seeds, with what the fedavg row of the same figure had."""
    runs: dict[tuple[str, str], list[Run]] = {}
    for folder in sorted(out.iterdir()):
        for figure, rows in ROWS.items():
            for row in rows:
                if folder.name.startswith(f"{figure}-{row}-s") and (folder / "summary.json").exists():
                    runs.setdefault((figure, row), []).append(Run(folder))
    for (figure, row), members in runs.items():
        found = [facts(run) for run in members]
        base = {run.experiment.run.seed: facts(run) for run in runs.get((FILES_BASE.get(figure, figure), "fedavg"), [])}
        times, traffic = [], []
        for run, one in zip(members, found, strict=True):
            other = base.get(run.experiment.run.seed)
            if other is None:
                continue
            target = 0.98 * other["accuracy"]
            mine, theirs = reached(one, target), reached(other, target)
            if mine and theirs:
                times.append(mine[0] / theirs[0])
                traffic.append(mine[1] / theirs[1])
        says = {
            "accuracy": spread([100 * one["accuracy"] for one in found]),
            "slow": spread([100 * one["slow"] for one in found if one["slow"] is not None]),
            "worst tenth": spread([100 * one["worst_tenth"] for one in found]),
            "time to fedavg's": spread(times),
            "bytes to fedavg's": spread(traffic),
            "uploads": spread([one["uploads"] for one in found]),
            "downloads": spread([one["downloads"] for one in found]),
            "peak up MB": spread([one["peak_up"] / 1e6 for one in found]),
            "staleness": spread(
                [one["records"]["staleness_mean"] for one in found if "staleness_mean" in one["records"]]
            ),
            "stack": spread([one["stack"] for one in found]),
        }
        if figure == "drift":
            says["recovery"] = str(sorted(n for run in members for n in recovery(run)))
        print(
            f"{figure:12s} {row:22s} n={len(found)} " + "  ".join(f"{k} {v}" for k, v in says.items() if v), flush=True
        )


FILES_BASE = {"choices": "preferences"}


def spread(values: list[float]) -> str:
    if not values:
        return ""
    return f"{mean(values):.4g}" + (f"±{stdev(values):.2g}" if len(values) > 1 else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*", choices=[[], *ROWS], metavar="FIGURE", help=", ".join(ROWS))
    parser.add_argument("--rows", nargs="+", help="only these")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("runs/echopfl"))
    parser.add_argument("--table", type=Path, help="print the table of the runs in this folder")
    args = parser.parse_args()
    if args.table:
        table(args.table)
    args.out.mkdir(parents=True, exist_ok=True)
    for seed in range(args.seeds):
        for figure in args.figures:
            for row in args.rows or ROWS[figure]:
                run = made(figure, row, seed, args.out)
                summary = run.summary
                print(run.name, f"{summary['accuracy']['mean']:.4f}", f"{summary['wall_seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
