"""The damage that attackers do, with and without the defences: the tables of docs/hostile.md.

python experiments/hostile/table.py --seeds 3 --out runs/hostile        run what is missing, then print the tables
python experiments/hostile/table.py --out runs/hostile --print          print what is there

20 clients, an MLP (FedCFC: its own network), everybody on a PC. All methods on UCI-HAR at 10 Hz with few rows, FedAvg
also on two larger sets. Accuracy is the mean over the honest clients' test rows. A run that is there is not run again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import potluck

METHODS = ("fedavg", "ftl", "clusterfl", "echopfl", "fedcfc", "fedconv")
# name -> data, most rows of a client (0: all), passes over them
SETS = {
    "har": ("uci_har_10hz", 100, 30.0),
    "all-rows": ("uci_har", 0, 15.0),
    "mnist": ("mnist", 300, 15.0),
    "settled": ("uci_har_10hz", 0, 40.0),  # with a tuned step size: most clients change little in the end
}
LARGER = ("all-rows", "mnist", "settled")  # with FedAvg alone, and fewer defences
TUNED = {"recipe": {"epochs": 1, "batch": 16, "lr": 0.35}}
# name -> attackers of 20, attack, scale
ATTACKS: dict[str, tuple[int, str, float]] = {
    "nobody": (0, "sign", 10.0),
    "sign x10, 1": (1, "sign", 10.0),
    "sign x10, 3": (3, "sign", 10.0),
    "scale x100, 1": (1, "scale", 100.0),
    "noise x10, 2": (2, "noise", 10.0),
    "collude x10, 2": (2, "collude", 10.0),
    "labels, 2": (2, "labels", 1.0),
    "backdoor x5, 2": (2, "backdoor", 5.0),
}
HIDDEN: dict[str, tuple[int, str, float]] = {  # with FedAvg, the default and Krum
    "backdoor x1, 2": (2, "backdoor", 1.0),  # not enlarged, so it looks like the others
    "trigger alone, 2": (2, "backdoor", 1e-6),  # nobody teaches the trigger: what it turns by itself
}
# name -> wire.clip and method.merge
DEFENCES: dict[str, tuple[float, dict[str, Any]]] = {
    "none": (0.0, {}),
    "bound (default)": (1.5, {}),
    "bound 1": (1.0, {}),
    "bound 3": (3.0, {}),
    "bound, median": (1.5, {"rule": "median"}),
    "bound, trimmed": (1.5, {"rule": "trimmed"}),
    "bound, krum": (1.5, {"rule": "krum"}),  # of 16: all but the fifth that may lie
    "bound, krum of 12": (1.5, {"rule": "krum", "keep": 12}),
    "bound, geometric-median": (1.5, {"rule": "geometric-median"}),
    "bound, centred-clip": (1.5, {"rule": "centred-clip"}),
}
FIRST = ("none", "bound (default)")
FEW = (*FIRST, "bound 1", "bound, median", "bound, trimmed", "bound, krum", "bound, krum of 12")
RULES = ("nobody", "sign x10, 1", "sign x10, 3", "collude x10, 2", "backdoor x5, 2")
KRUM = ("bound (default)", "bound, krum", "bound, krum of 12")

Cell = tuple[str, str, str, str]  # set, method, attack, defence


def experiment(cell: Cell, seed: int, out: Path) -> dict[str, Any]:
    where, method, attack, defence = cell
    source, rows, passes = SETS[where]
    many, kind, scale = {**ATTACKS, **HIDDEN}[attack]
    clip, merge = DEFENCES[defence]
    return {
        "data": {"source": source},
        "partition": {"clients": 20, **({"most_rows": rows} if rows else {})},
        "fleet": {"devices": "pc"},
        "method": {"name": method, **(TUNED if where == "settled" else {}), **({"merge": merge} if merge else {})},
        **({} if method == "fedcfc" else {"model": {"name": "mlp"}}),
        "budget": {"local_passes": passes},
        "wire": {"clip": clip},
        "faults": {"hostile": many / 20, "attack": kind, "scale": scale},
        "run": {"seed": seed, "out": str(out), "name": name_of(cell, seed), "evaluate_every": 1000},
    }


def name_of(cell: Cell, seed: int) -> str:
    parts = (*(cell[1:] if cell[0] == "har" else cell), str(seed))
    return "-".join(part.replace(",", "").replace("(", "").replace(")", "").replace(" ", "_") for part in parts)


def wanted() -> list[Cell]:
    plain = [("har", method, attack, defence) for attack in ATTACKS for method in METHODS for defence in FIRST]
    robust = [("har", "fedavg", attack, defence) for defence in DEFENCES if defence not in FIRST for attack in RULES]
    larger = [(where, "fedavg", attack, defence) for where in LARGER for defence in FEW for attack in RULES]
    hidden = [(where, "fedavg", attack, defence) for where in SETS for attack in HIDDEN for defence in KRUM]
    return sorted(plain + robust + larger + hidden, key=lambda one: one[1] == "fedcfc")  # the slowest last


def figures(out: Path, cell: Cell, seeds: int) -> list[dict[str, Any]]:
    paths = [out / name_of(cell, seed) / "summary.json" for seed in range(seeds)]
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.is_file()]


def shown(found: list[dict[str, Any]], seeds: int) -> str:
    """Accuracy of the honest clients, and how often a backdoor's trigger works."""
    if not found:
        return ""
    accuracy = [one["attack"]["honest_accuracy"] if one["attack"] else one["accuracy"]["mean"] for one in found]
    text = f"{fmean(accuracy):.3f}" + (f" ± {stdev(accuracy):.3f}" if len(accuracy) > 1 else "")
    hits = [one["attack"]["backdoor"] for one in found if one["attack"] and one["attack"]["backdoor"] is not None]
    text += f", {100 * fmean(hits):.0f} % hits" if hits else ""
    return text + (f" ({len(found)} seeds)" if len(found) < seeds else "")


def tables(out: Path, seeds: int) -> None:
    for defence in FIRST:
        print(f"\n{defence}\n\n| attack | " + " | ".join(METHODS) + " |\n|---|" + "---|" * len(METHODS))
        for attack in ATTACKS:
            row = [shown(figures(out, ("har", method, attack, defence), seeds), seeds) for method in METHODS]
            print(f"| {attack} | " + " | ".join(row) + " |")
    for where in SETS:
        print(f"\nfedavg, {where}\n\n| defence | " + " | ".join(RULES) + " |\n|---|" + "---|" * len(RULES))
        for defence in DEFENCES if where == "har" else FEW:
            row = [shown(figures(out, (where, "fedavg", attack, defence), seeds), seeds) for attack in RULES]
            print(f"| {defence} | " + " | ".join(row) + " |")
    print(f"\nfedavg, backdoors that hide\n\n| set | defence | {' | '.join(HIDDEN)} |\n|---|---|{'---|' * len(HIDDEN)}")
    for where in SETS:
        for defence in KRUM:
            row = [shown(figures(out, (where, "fedavg", attack, defence), seeds), seeds) for attack in HIDDEN]
            print(f"| {where} | {defence} | " + " | ".join(row) + " |")
    print("\nRuns without attackers: updates clipped, and the worst tenth without and with the bound")
    for where, method in [("har", method) for method in METHODS] + [(where, "fedavg") for where in LARGER]:
        free, found = (figures(out, (where, method, "nobody", defence), seeds) for defence in FIRST)
        worst = [fmean(one["accuracy"]["worst_tenth"] for one in runs) for runs in (free, found) if runs]
        print(f"{where}, {method}: {[one['clipped_updates'] for one in found]}, {[round(one, 3) for one in worst]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/hostile"))
    parser.add_argument("--part", default="0/1", metavar="I/N", help="run only every N-th run, from the I-th")
    parser.add_argument("--print", action="store_true", help="run nothing")
    asked = parser.parse_args()
    first, step = map(int, asked.part.split("/"))
    runs = [(cell, seed) for seed in range(asked.seeds) for cell in wanted()]
    for number, (cell, seed) in enumerate(runs[first::step] if not asked.print else []):
        if not (asked.out / name_of(cell, seed) / "summary.json").is_file():
            print(f"run {number + 1} of {len(runs[first::step])}: {name_of(cell, seed)}", flush=True)
            potluck.run(experiment(cell, seed, asked.out))
    tables(asked.out, asked.seeds)


if __name__ == "__main__":
    main()
