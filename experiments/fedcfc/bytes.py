"""Accuracy against bytes: what a budget of bytes a round buys (docs/methods/fedbits.md).

    python experiments/fedcfc/bytes.py --seeds 5 --out runs/bytes.json --picture bytes.svg

Under each budget, up and down, several networks fit at unlike numbers of bits. Validation rows of a trial seed choose
network, bits and learning rate, for each budget and for each method that the picture compares with. The test rows of
the other seeds give the figure. Going alone may choose its network, too.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from potluck.runs.experiment import Experiment
from potluck.studies.modules import RATES, TRIAL, Arm, score
from potluck.studies.plots import COLOURS

HERE = Path(__file__).parent
NETS = {8: (8, 12, 8), 16: (16, 24, 16), 32: (32, 48, 32), 64: (64, 96, 64)}
BUDGETS: dict[float, tuple[tuple[int, int], ...]] = {  # kB a round each way: state of the network, bits of a number
    0.5: ((8, 1),),
    1.0: ((8, 6), (16, 1)),
    2.7: ((8, 8), (16, 7), (32, 1)),
    10.0: ((16, 8), (32, 7), (64, 2)),
    30.0: ((32, 8), (64, 6)),
}
OTHERS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {  # method and settings, networks to choose from
    "alone": ({"name": "local"}, (8, 16, 32, 64)),
    "fBind on f": ({"name": "fedcfc"}, (16, 32)),
    "all but the read-out, float32": ({"name": "fedbits", "bits": 32}, (16, 32)),
}


def experiment(file: Path, net: int, settings: Sequence[str]) -> Experiment:
    hidden, backbone, head = NETS[net]
    sizes = (f"model.hidden={hidden}", f"model.backbone={backbone}", f"model.head={head}")
    return Experiment.read(file, [*sizes, *settings])


def point(
    name: str, candidates: Sequence[tuple[int, Arm]], args: argparse.Namespace, most: float = 0.0
) -> dict[str, Any]:
    """The best of the candidates by validation rows, and what it does on test rows."""
    tried = []
    for net, arm in candidates:
        plan = experiment(args.experiment, net, args.set)
        for lr in RATES:
            accuracy, up, down = score(plan, arm, TRIAL, lr, "valid")
            if most and max(up, down) > 1000 * most:
                raise SystemExit(f"{name}: {net} with {arm.method} takes {up:.0f} bytes up and {down:.0f} down.")
            tried.append((accuracy, net, lr, arm))
    accuracy, net, lr, arm = max(tried, key=lambda one: one[0])
    found = [score(experiment(args.experiment, net, args.set), arm, seed, lr, "test") for seed in range(args.seeds)]
    values = [one[0] for one in found]
    row = {
        "name": name, "net": net, "bits": arm.method.get("bits"), "lr": lr, "valid": accuracy, "accuracy": values,
        "up": found[0][1], "down": found[0][2],
    }  # fmt: skip
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    print(
        f"{name:32s} state {net:2d}  bits {row['bits']}  lr {lr:g}  {statistics.mean(values):.3f} ± {spread:.3f}  "
        f"bytes up {row['up']:.0f} down {row['down']:.0f}",
        flush=True,
    )
    return row


def picture(rows: Sequence[dict[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    ours = [row for row in rows if row["name"].startswith("fedbits")]
    x, y = [row["up"] / 1000 for row in ours], [statistics.mean(row["accuracy"]) for row in ours]
    spread = [statistics.stdev(row["accuracy"]) if len(row["accuracy"]) > 1 else 0.0 for row in ours]
    axes.errorbar(x, y, yerr=spread, marker="o", capsize=3, color=COLOURS[0], label="fedbits")
    for row, a, b in zip(ours, x, y, strict=True):
        axes.annotate(
            f"state {row['net']}, {row['bits']} bit", (a, b), (4, -12), textcoords="offset points", fontsize=7
        )
    alone = next(row for row in rows if row["name"] == "alone")
    axes.axhline(statistics.mean(alone["accuracy"]), color="#777777", linestyle="--", label="alone (its best network)")
    for colour, name in ((COLOURS[1], "fBind on f"), (COLOURS[2], "all but the read-out, float32")):
        row = next(row for row in rows if row["name"] == name)
        half = statistics.stdev(row["accuracy"]) if len(row["accuracy"]) > 1 else 0.0
        at = statistics.mean(row["accuracy"])
        axes.errorbar(
            [row["up"] / 1000], [at], yerr=half, marker="s", capsize=3, color=colour, label=name, linestyle=""
        )
    axes.set_xscale("log")
    axes.set_xticks([0.5, 1, 2.7, 10, 30], ["0.5", "1", "2.7", "10", "30"])
    axes.minorticks_off()
    axes.set_xlabel("kB of a client in a round, each way")
    axes.set_ylabel("accuracy on the clients' test rows")
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiment", type=Path, default=HERE / "modules.toml")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("runs/bytes.json"))
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = json.loads(args.out.read_text()) if args.out.exists() else []
    args.out.parent.mkdir(parents=True, exist_ok=True)
    plans = [
        (
            f"fedbits, {kb:g} kB",
            [(net, Arm("network", f"{kb:g} kB", {"name": "fedbits", "bits": bits})) for net, bits in fits],
            kb,
        )
        for kb, fits in BUDGETS.items()
    ]
    plans += [
        (name, [(net, Arm("network", name, method)) for net in nets], 0.0) for name, (method, nets) in OTHERS.items()
    ]
    for name, candidates, most in plans:
        if name not in {row["name"] for row in rows}:
            rows.append(point(name, candidates, args, most))
            args.out.write_text(json.dumps(rows))
    if args.picture is not None:
        picture(rows, args.picture)


if __name__ == "__main__":
    main()
