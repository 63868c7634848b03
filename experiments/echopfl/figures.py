"""The figures of docs/methods/echopfl.md: makes the runs asked for, and prints the table of those that are there.

    python experiments/echopfl/figures.py har preferences drift --seeds 5 --out runs/echopfl
    python experiments/echopfl/figures.py --table runs/echopfl

A run that is there already is not made again, so that the script can be stopped and started anew.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

import potluck
from potluck import methods
from potluck.runs.experiment import Experiment
from potluck.runs.results import Run
from potluck.settings import moved_to

HERE = Path("experiments/echopfl")
Row = dict[str, dict[str, Any]]  # sections of the experiment that differ from the figure's file


def row(name: str, seconds: float | None = None, **method: Any) -> Row:
    """One line of a figure; settings by the last parts of their names: `count` is clusters.count.

    All methods train alike: two epochs, batches of 32, the same learning rate (see the page).
    """
    own = {"legs": 1, "c_gain": 4.0} if name == "echopfl" else {}
    config = methods.load(name).config
    given = {"epochs": 2, "batch": 32, "lr": 0.2, **own, **method}
    sections: Row = {"method": {"name": name, **{moved_to(config, key) or key: given[key] for key in given}}}
    return sections if seconds is None else {**sections, "stop": {"virtual_seconds": seconds}}


ALONE = {"count": 1, "refine": False}


def five(longer: float) -> dict[str, Row]:
    """Section 7.2.2. Synchronous methods get more virtual time, because their last accuracy is the target."""
    return {
        "fedavg": row("fedavg", longer, lr=0.1),
        "echopfl": row("echopfl", lr=0.1, c_gain=1.0),
        "pace-fedavg": row("echopfl", lr=0.1, c_gain=1.0, bytes_per_second="fedavg"),
        "fedasync": row("fedasync", lr=0.1),
        "fedsea": row("fedsea", lr=0.1),
        "fedbuff": row("fedbuff", lr=0.1),
        "oort": row("oort", longer, lr=0.1),
        "local": row("local", lr=0.1),
        "most-1.5": row("echopfl", lr=0.1, c_gain=1.0, most=1.5),
        "most-3": row("echopfl", lr=0.1, c_gain=1.0, most=3.0),
        "ewma": row("echopfl", lr=0.1, c_gain=1.0, predictor="ewma"),
        "always": row("echopfl", lr=0.1, c_gain=1.0, predictor="always"),
        "never": row("echopfl", lr=0.1, c_gain=1.0, predictor="never"),
        "query": row("echopfl", lr=0.1, c_gain=1.0, predictor="never", query_every=2.0),
    }


BEFORE = {"first": "l1", "alike": 1.0, "split": "share", "feedback": "frequencies"}  # as printed
SCENARIO = {
    "fedavg": row("fedavg"),
    "echopfl": row("echopfl"),
    "apart": row("echopfl", alike=1.0),  # alike clusters stay apart
    "local": row("local"),
}
ROWS: dict[str, dict[str, Row]] = {
    "har": {
        "fedavg": row("fedavg", 400.0),
        "clusterfl": row("clusterfl", 400.0),
        "echopfl": row("echopfl"),
        "pace-fedavg": row("echopfl", 400.0, bytes_per_second="fedavg"),
        "pace-1MB": row("echopfl", 300.0, bytes_per_second=1e6),  # FedAvg's traffic here is half of that
        "pace-2MB": row("echopfl", 200.0, bytes_per_second=2e6),
        "pace-fedavg-never": row("echopfl", 400.0, bytes_per_second="fedavg", predictor="never"),
        "pace-fedavg-fill": row("echopfl", 400.0, bytes_per_second="fedavg", fill=1.0),
        "fill-0.5": row("echopfl", fill=0.5),
        "fedasync": row("fedasync"),
        "fedsea": row("fedsea"),
        "fedbuff": row("fedbuff"),
        "oort": row("oort", 400.0),
        "local": row("local", 400.0),
    },
    "preferences": {
        "fedavg": row("fedavg"),
        "echopfl": row("echopfl"),
        "as-printed": row("echopfl", **BEFORE),
        "direction": row("echopfl", first="direction"),
        "first-kl": row("echopfl", first="kl"),
        "query": row("echopfl", predictor="never", query_every=2.0),
        "no-broadcast": row("echopfl", predictor="never"),
        "no-clusters": row("echopfl", **ALONE),
        "clusters-4": row("echopfl", count=4),
        "clusters-8": row("echopfl", count=8),
        "most-1.5": row("echopfl", most=1.5),
        "most-3": row("echopfl", most=3.0),
        "gain-1": row("echopfl", c_gain=1.0),
        "ewma": row("echopfl", predictor="ewma"),
        "text": row("echopfl", predictor="text"),
        "mix": row("echopfl", merge_rule="mix"),
        "merge-fedasync": row("echopfl", merge_rule="fedasync"),
        "restart": row("echopfl", on_arrival="restart"),
        "next": row("echopfl", on_arrival="next"),
        "l1": {**row("echopfl"), "server": {"share": 0.05}},
        "kl": {**row("echopfl", assign="kl"), "server": {"share": 0.05}},
    },
    "har_two_classes": {
        "fedavg": row("fedavg"),
        "echopfl": row("echopfl"),
        "no-broadcast": row("echopfl", predictor="never"),
        "no-clusters": row("echopfl", **ALONE),
    },
    "five_mnist": five(240.0),
    "five_cifar10": five(24.0),
    "five_har": five(240.0),
    "many_clients": {
        "echopfl": row("echopfl"),
        "clusterfl": row("clusterfl", 240.0, f_every=2),
        "fedavg": row("fedavg", 240.0),
    },
    "drift": {
        "echopfl": row("echopfl"),
        "fedavg": row("fedavg"),
        "hysteresis-1": row("echopfl", hysteresis=1.0),
        "clusters-4": row("echopfl", count=4),
        "gain-1": row("echopfl", c_gain=1.0),
        "mix": row("echopfl", merge_rule="mix"),
    },
    "drift_names": {
        "echopfl": row("echopfl"),
        "fedavg": row("fedavg"),
        "half": {**row("echopfl"), "drift": {"clients": 0.5}},  # 15 of 30: a larger group to learn the new names with
        "as-printed": row("echopfl", **BEFORE),
    },
    **{f"scenario_{name}": SCENARIO for name in "abcd"},
}


def made(figure: str, name: str, seed: int, out: Path) -> Run:
    folder = out / f"{figure}-{name}-s{seed}"
    if (folder / "summary.json").exists():
        return Run(folder)
    values = Experiment.read(HERE / f"{figure}.toml").model_dump()
    for section, settings in ROWS[figure][name].items():
        values[section] = settings if section == "method" else {**values[section], **settings}
    values["run"] |= {"seed": seed, "out": str(out), "name": folder.name}
    values["wire"] = {**values.get("wire", {}), "clip": 0}  # nobody attacks: the method as published
    return potluck.run(values)


def facts(run: Run) -> dict[str, Any]:
    """What the table needs of one run."""
    summary = run.summary
    moments = {one["step"]: one for one in run.table("steps")}
    curve = [
        (at["virtual"], one["mean"], at["bytes_up"] + at["bytes_down"])
        for one in run.table("evaluations")
        for at in (moments[one["step"]],)
    ]
    device = {one["client"]: one["device"] for one in run.table("clients")}
    slow = [accuracy for client, accuracy in summary["per_client"].items() if "pi-4" in device[client]]
    tasks = run.table("tasks")
    end = summary["virtual_seconds"]
    second = np.arange(0.0, end + 1.0)
    up, _ = np.histogram([t["arrived"] for t in tasks], second, weights=[t["bytes_up"] for t in tasks])
    records = {one["name"]: json.loads(one["value"]) for one in run.table("records")}
    return {
        "accuracy": summary["accuracy"]["mean"],
        "worst_tenth": summary["accuracy"]["worst_tenth"],
        "slow": mean(slow) if slow else None,
        "uploads": sum(t["bytes_up"] > 0 for t in tasks) / end,
        "downloads": sum(t["bytes_down"] > 0 for t in tasks) / end,
        "peak_up": float(up.max()) / 1e6,
        "stack": summary["mean_stack"],
        "staleness": records.get("staleness_mean"),
        "clusters": records.get("clusters"),
        "broadcasts": records["broadcasts"] / records["arrivals"] if "broadcasts" in records else None,
        "curve": curve,
    }


def reached(found: dict[str, Any], target: float) -> tuple[float, float] | None:
    """Virtual seconds and bytes until the mean accuracy was reached."""
    return next(((at, nbytes) for at, accuracy, nbytes in found["curve"] if accuracy >= target), None)


def against(mine: list[dict[str, Any]], theirs: list[dict[str, Any]], share: float, then: bool) -> str:
    """Time and bytes to this share of what the others had in the end (`then`: when ours ended),
    theirs as the unit; pairs of the same seed."""
    pairs = []
    for one, other in zip(mine, theirs, strict=False):
        end = one["curve"][-1][0] if then else float("inf")
        seen = [accuracy for at, accuracy, _ in other["curve"] if at <= end]
        target = share * (seen or [other["curve"][0][1]])[-1]
        ours, base = reached(one, target), reached(other, target)
        if ours and base:
            pairs.append((base[0] / ours[0], ours[1] / base[1], ours[0], base[0]))
    if not pairs:
        return "not reached"
    faster, traffic, ours_s, base_s = (list(column) for column in zip(*pairs, strict=True))
    return (
        f"{len(pairs)} of {len(mine)} runs: {spread(faster)} times faster "
        f"({spread(ours_s)} s against {spread(base_s)} s), bytes x {spread(traffic)}"
    )


def slow_at(run: Run, moment: float) -> float:
    """The mean accuracy of the slow devices when this much virtual time had passed."""
    device = {one["client"]: one["device"] for one in run.table("clients")}
    at = {one["step"]: one["virtual"] for one in run.table("steps")}
    seen = [one for one in run.table("accuracies") if at[one["step"]] <= moment and "pi-4" in device[one["client"]]]
    last = max(one["step"] for one in seen)
    return mean(one["accuracy"] for one in seen if one["step"] == last)


def recovery(run: Run, own: bool = False) -> list[int]:
    """For each client whose data changed, its own pushes until it had 95 % of its accuracy from before; -1: never.

    By the model that the server has for it, or by its `own`, as its last training left it.
    """
    from potluck.runs.build import build

    drift = build(run.experiment).evaluator._drift
    assert drift is not None
    (moment,) = run.experiment.drift.at[:1]
    at = {one["step"]: one["virtual"] for one in run.table("steps")}
    rows = [one for one in run.table("inferred") if one["model"] == "own"] if own else run.table("accuracies")
    found = []
    for client in (run.clients[i] for i in drift.concerned):
        seen = [(at[one["step"]], one["accuracy"]) for one in rows if one["client"] == client]
        before = [accuracy for when, accuracy in seen if when < moment][-1]
        back = next((when for when, accuracy in seen if when > moment and accuracy >= 0.95 * before), None)
        pushes = [t["arrived"] for t in run.table("tasks") if t["client"] == client and t["outcome"] == "accepted"]
        found.append(-1 if back is None else sum(moment < push <= back for push in pushes))
    return found


def together(run: Run) -> dict[tuple[str, str], int]:
    """Which pairs of clients shared a cluster in the end."""
    rows = run.table("clusters")
    last = max(one["step"] for one in rows)
    of = {one["client"]: one["cluster"] for one in rows if one["step"] == last}
    return {(a, b): int(of[a] == of[b]) for a in sorted(of) for b in sorted(of)}


def cosine(one: Run, other: Run) -> float:
    """Of the two co-membership matrices, over the clients both know."""
    a, b = together(one), together(other)
    u, v = (np.array([table[pair] for pair in sorted(a.keys() & b.keys())], dtype=float) for table in (a, b))
    return float(u @ v / np.sqrt((u @ u) * (v @ v)))


def table(out: Path) -> None:
    """Means and standard deviations over seeds."""
    for figure, rows in ROWS.items():
        runs = {name: _there(out, figure, name) for name in rows}
        found = {name: [facts(run) for run in members] for name, members in runs.items() if members}
        for name, ones in found.items():
            says = {
                "accuracy": spread([100 * one["accuracy"] for one in ones]),
                "slow": spread([100 * one["slow"] for one in ones if one["slow"] is not None]),
                "worst tenth": spread([100 * one["worst_tenth"] for one in ones]),
                "up/s": spread([one["uploads"] for one in ones]),
                "down/s": spread([one["downloads"] for one in ones]),
                "peak up MB/s": spread([one["peak_up"] for one in ones]),
                "stack": spread([one["stack"] for one in ones]),
                **{
                    key: spread([one[key] for one in ones if one[key] is not None])
                    for key in ("staleness", "clusters", "broadcasts")
                },
            }
            print(f"{figure} {name}: n={len(ones)}  " + "  ".join(f"{k} {v}" for k, v in says.items() if v))
            for base in ("fedavg", "clusterfl", "no-broadcast", "fedasync"):
                if base in found and base != name:
                    print(f"    to {base}'s when {name} ended: {against(ones, found[base], 1.0, then=True)}")
                    for share in (0.95, 0.98, 1.0):
                        print(f"    to {share:.0%} of {base}'s end: {against(ones, found[base], share, then=False)}")
            if figure == "har":
                for moment in (60.0, 120.0):
                    print(f"    slow at {moment:.0f} s: {spread([100 * slow_at(run, moment) for run in runs[name]])}")
            if figure.startswith("drift"):
                for own in (False, True):
                    pushes = sorted(n for run in runs[name] for n in recovery(run, own))
                    soon = sum(0 <= n <= 5 for n in pushes)
                    print(f"    recovered, {'own' if own else 'received'} model: {soon} of {len(pushes)}: {pushes}")
        if figure == "many_clients" and {"echopfl", "clusterfl"} <= found.keys():
            pairs = zip(runs["echopfl"], runs["clusterfl"], strict=False)
            print(f"    cosine: {spread([cosine(one, other) for one, other in pairs])}")


def _there(out: Path, figure: str, name: str) -> list[Run]:
    folders = sorted(out.glob(f"{figure}-{name}-s[0-9]*"))
    return [Run(folder) for folder in folders if (folder / "summary.json").exists()]


def spread(values: list[float]) -> str:
    if not values:
        return ""
    return f"{mean(values):.4g}" + (f" ± {stdev(values):.2g}" if len(values) > 1 else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*", choices=[[], *ROWS], metavar="FIGURE", help=", ".join(ROWS))
    parser.add_argument("--rows", nargs="+", help="only these")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("runs/echopfl"))
    parser.add_argument("--table", type=Path, help="print the table of the runs in this folder")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for seed in range(args.seeds):
        for figure in args.figures:
            for name in args.rows or ROWS[figure]:
                run = made(figure, name, seed, args.out)
                summary = run.summary
                print(run.name, f"{summary['accuracy']['mean']:.4f}", f"{summary['wall_seconds']:.0f} s", flush=True)
    if args.table:
        table(args.table)


if __name__ == "__main__":
    main()
