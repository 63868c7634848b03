"""The figures of docs/methods/centaur.md: every row is a few runs over seeds of one experiment file with some settings.

    python experiments/centaur/figures.py TABLE [--seeds 5] [--only centaur ucd] [--hand-over any] [--out runs/centaur]

TABLE is one of those below; those called `lr_...` say what settings give on validation rows. One line of JSON per run
is added to OUT/TABLE.jsonl; runs that are there are not made again; the table over the seeds is printed at the end.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from scipy import stats

import potluck
from potluck.runs.build import build
from potluck.runs.evaluate import stacked
from potluck.runs.experiment import Experiment, override, read_toml
from potluck.runs.pretrain import pretrain
from potluck.runs.record import read
from potluck.runs.results import Run

HERE = Path(__file__).parent
COSTS = """SELECT sum(macs) AS macs, sum(bytes_up) AS up, sum(bytes_down) AS down, sum(bytes_handoff) AS handoff,
    sum(joules) AS joules, sum(trained - started) AS computing, sum(arrived - sent) AS seconds
    FROM tasks WHERE outcome IN ('accepted', 'post') AND client {whose} '%-ap'"""
BY_STEP = """SELECT step, client LIKE '%-ap' AS ap, sum(macs) AS macs, sum(joules) AS joules,
    sum(arrived - sent) AS seconds, sum(bytes_up + bytes_down + bytes_handoff) AS bytes
    FROM tasks WHERE outcome IN ('accepted', 'post') GROUP BY step, ap ORDER BY step"""
SPENDS = ("macs", "joules", "seconds", "bytes")
STUDY, CONV = "stop.rounds=16", "stop.rounds=12"  # a baseline's own training rounds
EQUAL = ("partition.samples=330", "partition.test_share=0.3")  # clients of one size, however few classes each has
PAIRS = 5  # accuracy is the mean over the rounds of the last so many pairs: both halves of Centaur's
NARROW, PUBLISHED = 8, 64  # channels of the ConvNet
RELEASED = ("method.selection.hand_over=all", "method.selection.redraw=true")
AP = ("method.name=ap",)
SPENT = (
    ("steps of devices", "records steps"),
    ("their MACs", "costs device macs"),
    ("their seconds computing", "costs device computing"),
    ("their seconds with links", "costs device seconds"),
    ("their joules", "costs device joules"),
)
LATENCY = {  # of Centaur beside AP training
    "all computing": ("costs device computing", "costs ap computing"),  # as in print: no links
    "the run, with links": ("virtual",),
}
Row = tuple[str, str, list[str]]  # what it is called, the experiment file, settings


def three(file: str, pairs: int, *settings: str, ucd: tuple[str, ...] = ()) -> list[Row]:
    """Centaur and both baselines, each with as many training rounds of its own as Centaur has pairs."""
    tag, own = " ".join(settings), f"stop.rounds={pairs}"
    return [
        (f"centaur {tag}".strip(), file, [*settings, f"stop.rounds={2 * pairs}"]),
        (f"ucd {tag}".strip(), file, ["method.name=ucd", own, *ucd, *settings]),
        (f"ap {tag}".strip(), file, ["method.name=ap", own, *settings]),
    ]


def encoder(out: Path, width: int) -> Path:
    return (out / f"motionsense_{width}.safetensors").absolute()


def trained_on_motionsense(out: Path, rows: list[Row]) -> None:
    """Write the encoders that these rows ask for: the ConvNet, trained on all of MotionSense's training rows."""
    asked = {one for *_, settings in rows for one in settings}
    for width in (NARROW, PUBLISHED):
        if f"model.encoder={encoder(out, width)}" in asked and not encoder(out, width).exists():
            model = {"name": "convnet", "norm": "batch", "width": width}
            made = pretrain(encoder(out, width), "motionsense", model, epochs=1, batch=32, lr=0.05)
            print(f"{width} channels: accuracy on MotionSense {made.accuracy:.3f}, {made.samples} samples", flush=True)


def encoders(out: Path) -> list[Row]:
    """UCD training by encoder and width, and the methods that begin with the encoder of MotionSense."""
    drift, ucd = "method.encoder.batch_norm=train", ["method.name=ucd", CONV]
    rows: list[Row] = []
    for width in (NARROW, PUBLISHED):
        wide, given = [f"model.width={width}", "run.evaluate_every=2"], f"model.encoder={encoder(out, width)}"
        rows += [
            (f"{width}, random, frozen", "uci_har", [*ucd, *wide]),
            (f"{width}, random, statistics drift", "uci_har", [*ucd, *wide, drift]),
            (f"{width}, MotionSense, frozen", "uci_har", [*ucd, *wide, given]),
        ]
        for start, how in (("MotionSense", [*wide, given]), ("random", wide)):
            rows += [
                (f"{width}, {start}, centaur, 25 %", "uci_har", how),
                (f"{width}, {start}, centaur, released", "uci_har", [*how, *RELEASED]),
                (f"{width}, {start}, ap, released", "uci_har", [*AP, "method.samples=redrawn", CONV, *how]),
                (f"{width}, {start}, ap, everything", "uci_har", [*AP, CONV, *how]),
            ]
    return rows


def tables(out: Path = Path()) -> dict[str, list[Row]]:
    drift = ("method.encoder.batch_norm=train",)
    found: dict[str, list[Row]] = {
        "uci_har": three("uci_har", 12, ucd=drift),
        "motionsense": three("motionsense", 12, ucd=drift),
        "sets": [
            row
            for name in ("uci_har", "motionsense")
            for row in [
                *three("study", 16, f"data.source={name}"),
                (f"ucd, equal data {name}", "study",
                 ["method.name=ucd", STUDY, "method.exposure=collected", f"data.source={name}"]),
            ]
        ],
        "dirichlet": [
            row for alpha in (0.001, 0.1, 1.0, 1000.0) for row in three("study", 12, f"partition.alpha={alpha}", *EQUAL)
        ],
        "connectivity": [
            row
            for low, high in ((0.1, 0.4), (0.4, 0.7), (0.7, 1.0))
            for row in three("study", 12, f"method.connection.mobility=[{low}, {high}]")
        ],
        "fleet": [
            (f"{name}, {clients} clients, {100 * share:.0f} %", "study",
             [*own, f"partition.clients={clients}", f"method.cohort={round(clients * share)}", "run.stacking=auto",
              f"stop.rounds={rounds}", "run.evaluate_every=2"])
            for clients in (10, 100, 500, 1000)
            for share in (0.1, 0.2, 0.5)
            for name, own, rounds in (
                ("centaur", [], 20),
                ("centaur, released", RELEASED, 20),
                ("centaur, chosen before encoding", ["method.selection.encode=kept"], 20),
                ("ap, redrawn", [*AP, "method.samples=redrawn"], 10),
                ("ap, everything", AP, 10),
                ("ucd", ["method.name=ucd"], 10),
            )
        ],
        "exponents": [
            (f"alpha {a} beta {b} gamma {c}", "study",
             [f"method.selection.{name}={value}" for name, value in (("alpha", a), ("beta", b), ("gamma", c))])
            for a, b, c in ((1, 10, 0), (3, 5, 0), (5, 3, 0), (10, 1, 0), (5, 3, 1), (5, 3, 3), (5, 3, 5))
        ],
        "selection": [
            (f"{name}{few}", "study", [*random, *beta])
            for few, beta in (("", []), (", few handed over", ["method.selection.beta=10"]))
            for name, random in (("by loss", []), ("at random", ["method.selection.by=random"]))
        ],
        "ablations": [
            ("no discarding", "study", ["method.selection.alpha=0"]),
            ("no hand-over", "study", ["method.selection.beta=0"]),
            ("printed P_N", "study", ["method.selection.form=printed"]),
            ("redrawn at the access point", "study", ["method.selection.redraw=true"]),
            ("5 % outliers set aside", "study", ["method.selection.outliers=0.05"]),
            ("FedProx, both tiers", "study", ["method.merge.device=fedprox", "method.merge.ap=fedprox"]),
            ("SCAFFOLD, both tiers", "study", ["method.merge.device=scaffold", "method.merge.ap=scaffold"]),
            ("ap, 512 kB storage", "study", ["method.name=ap", STUDY, "method.capped=true", "method.storage_kb=512"]),
            ("unconstrained", "study", ["method.name=ap", STUDY, "method.unconstrained=true"]),
        ],
        "pays": [
            (f"{name} {source}", "study", [*settings, f"data.source={source}"])
            for source in ("uci_har", "motionsense")
            for name, settings in (
                ("losses now", []),
                ("losses remembered", ["method.selection.encode=kept"]),
                ("at random, no pass", ["method.selection.encode=kept", "method.selection.by=random"]),
                ("no discarding", ["method.selection.alpha=0"]),
                ("no discarding, at random, no pass",
                 ["method.selection.alpha=0", "method.selection.encode=kept", "method.selection.by=random"]),
                ("losses remembered, half discarded", ["method.selection.encode=kept", "method.selection.alpha=1.5"]),
            )
        ],
        "classifiers": [
            (size, "uci_har", [f"model.classifier={size}"]) for size in ("small", "medium", "large")
        ],
        "encoders": encoders(out),
    }  # fmt: skip
    found["lr_batch"] = [(f"batch {batch}", "uci_har", [f"method.recipe.batch={batch}"]) for batch in (16, 64)]
    for file in ("uci_har", "study"):
        found[f"lr_{file}"] = [(f"lr {lr}", file, [f"method.recipe.lr={lr}"]) for lr in (0.003, 0.01, 0.03, 0.1)]
    return found


def validated(run: Run, experiment: Experiment) -> float:
    """Accuracy of the common model on the clients' validation rows."""
    parts = build(experiment)
    weights = load_file(run.folder / "models" / "global.safetensors")
    right = total = 0.0
    for place, size in enumerate(parts.federation.valid_sizes):
        data = stacked(parts.federation, [place], "valid", max(1, int(size)))
        with torch.no_grad():
            said = parts.model.logits(weights, data.x[0]).argmax(-1)
        right += float(((said == data.y[0]) * data.weight[0]).sum())
        total += float(data.weight[0].sum())
    return right / max(1.0, total)


def measured(name: str, file: str, settings: list[str], seed: int, out: Path, check: bool) -> dict[str, Any]:
    values = override(read_toml(HERE / f"{file}.toml"), [*settings, f"run.seed={seed}", f"run.out={out / 'runs'}"])
    experiment = Experiment.of(values)
    cpu = time.process_time()
    run = potluck.run(experiment)
    curve = [row["global"] for row in run.table("evaluations")]
    rounds = 2 * PAIRS if experiment.method["name"] == "centaur" else PAIRS
    late = curve[-max(1, rounds // experiment.run.evaluate_every) :]
    records = {row["name"]: float(row["value"]) for row in run.table("records")}  # the last of each
    costs = {
        who: {
            name: float(value or 0.0)
            for name, value in read(run.folder / "run.db", COSTS.format(whose=whose))[0].items()
        }
        for who, whose in (("device", "NOT LIKE"), ("ap", "LIKE"))
    }
    return {
        "row": name,
        "seed": seed,
        "last": statistics.mean(late),
        "best5": statistics.mean(sorted(curve)[-5:]),
        "final": curve[-1],
        "curve": [round(value, 4) for value in curve],
        "valid": validated(run, experiment) if check else None,
        "records": records,
        "costs": costs,
        "spent": spent(run),
        "virtual": run.summary["virtual_seconds"],
        "cpu": time.process_time() - cpu,
        "rounds": run.summary["rounds"],
    }


def spent(run: Run) -> dict[str, list[list[float]]]:
    """What devices and access points had spent at each evaluation: rows of `SPENDS`."""
    rows, steps = read(run.folder / "run.db", BY_STEP), [row["step"] for row in run.table("evaluations")]
    return {
        who: [
            [sum(r[what] or 0.0 for r in rows if r["ap"] == ap and r["step"] <= step) for what in SPENDS]
            for step in steps
        ]
        for ap, who in enumerate(("device", "ap"))
    }


def until(row: dict[str, Any], target: float, who: str, what: str) -> float | None:
    """What was spent until the shared model first had this accuracy; None where it never had."""
    for accuracy, costs in zip(row["curve"], row["spent"][who], strict=True):
        if accuracy >= target:
            return float(costs[SPENDS.index(what)])
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=tables())
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[""], help="rows whose names begin so: centaur ucd")
    parser.add_argument("--hand-over", choices=("first", "any", "all"), default="first", help="of Centaur's rows")
    parser.add_argument("--out", type=Path, default=Path("runs/centaur"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    every = tables(asked.out)
    file = asked.out / f"{asked.table}{'' if asked.hand_over == 'first' else f'_{asked.hand_over}'}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    if asked.table == "encoders":
        wanted = [row for row in every[asked.table] if row[0].startswith(tuple(asked.only))]
        trained_on_motionsense(asked.out, wanted)
    known = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = {(row["row"], row["seed"]) for row in known}
    for seed in range(asked.first, asked.first + asked.seeds):
        for name, source, settings in every[asked.table]:
            if (name, seed) not in done and name.startswith(tuple(asked.only)):
                if not any(one.startswith(("method.name=", "method.selection.hand_over=")) for one in settings):
                    settings = [*settings, f"method.selection.hand_over={asked.hand_over}"]
                row = measured(name, source, settings, seed, asked.out, asked.table.startswith("lr"))
                known.append(row)
                with file.open("a") as lines:
                    lines.write(json.dumps(row) + "\n")
                print(f"{name}, seed {seed}: {row['last']:.4f} ({row['cpu']:.0f} s of one core)", flush=True)
    for name, *_ in every[asked.table]:
        mine = [row for row in known if row["row"] == name]
        if mine:
            share, steps = (np.mean([row["records"][what] for row in mine]) for what in ("share_handed", "ap_steps"))
            print(f"{name:45s} {_spread(mine, 'last')}  best five {_spread(mine, 'best5')}  n = {len(mine)}"
                  f"  handed over {100 * share:.1f} %  AP steps {steps:.0f}"
                  + (f"  validation {_spread(mine, 'valid')}" if mine[0]["valid"] is not None else ""))  # fmt: skip
    for line in compared(known):
        print(line)


def compared(rows: list[dict[str, Any]]) -> list[str]:
    """Centaur beside the baselines with the same settings, seed by seed: points of accuracy, what devices spent."""
    found = {(row["row"], row["seed"]): row for row in rows}
    lines = []
    for name in dict.fromkeys(row["row"] for row in rows if row["row"].startswith("centaur")):
        tag = name.removeprefix("centaur").strip()
        for other in (f"ucd {tag}".strip(), f"ap {tag}".strip(), f"ucd, equal data {tag.partition('=')[2]}"):
            seeds = [seed for who, seed in found if who == name and (other, seed) in found]
            both = [(found[name, seed], found[other, seed]) for seed in seeds]
            if both:
                gaps = [100 * (a["last"] - b["last"]) for a, b in both]
                said = [f"{_mean(gaps)} points{_interval(gaps)}"]
                if other.startswith("ucd"):
                    ratios = {what: [100 * (_at(a, path) / _at(b, path) - 1) for a, b in both] for what, path in SPENT}
                    said += [f"{what} {_mean(values)} %" for what, values in ratios.items()]
                for what, sides in LATENCY.items() if other.startswith("ap") else ():
                    mine, theirs = (
                        [sum(_at(row, path) for path in sides) for row in rows] for rows in zip(*both, strict=True)
                    )
                    said.append(f"{what} {np.mean(mine):.1f} against {np.mean(theirs):.1f} s")
                lines.append(f"{name} against {other}: {', '.join(said)}")
    return lines


def _at(row: dict[str, Any], path: str) -> float:
    value: Any = row
    for name in path.split():
        value = value[name]
    return float(value)


def _mean(values: list[float]) -> str:
    return f"{np.mean(values):+.1f} ± {np.std(values, ddof=1) if len(values) > 1 else 0.0:.1f}"


def _interval(values: list[float]) -> str:
    """The 95 % t interval of the mean, where there are seeds enough."""
    if len(values) < 3:
        return ""
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    return f" ({np.mean(values) - half:+.1f} to {np.mean(values) + half:+.1f})"


def _spread(rows: list[dict[str, Any]], what: str) -> str:
    values = np.array([row[what] for row in rows])
    return f"{values.mean():.4f} ± {values.std(ddof=1) if len(values) > 1 else 0.0:.4f}"


if __name__ == "__main__":
    main()
