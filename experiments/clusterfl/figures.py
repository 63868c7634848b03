"""The figures of docs/methods/clusterfl_results.md: `python experiments/clusterfl/figures.py [NAME ...]`.

Each row is an experiment file of this folder with a few settings changed. It prints the figures of the page. Runs are
kept in a folder (`--out`). A finished run is not run again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import statistics
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from sklearn.metrics import adjusted_rand_score

import potluck
from potluck import methods
from potluck.runs.experiment import override, read_toml
from potluck.runs.results import Run

HERE = Path(__file__).parent
OUT = Path("runs/clusterfl-figures")


def ran(file: str, seed: int, method: str = "clusterfl", every: int = 0, settings: tuple[str, ...] = ()) -> Run:
    """One run of an experiment file with another seed, method or settings; evaluated at the end unless `every`."""
    values = read_toml(HERE / f"{file}.toml")
    kept, _ = methods.load(method).suited(values["method"])
    values["method"] = {**kept, "name": method}
    if any(setting.startswith("method.beta=") for setting in settings):  # instead of the file's
        values["method"].pop("coupling", None)
    rounds = values["stop"]["rounds"]
    digest = hashlib.sha256(json.dumps([values, settings, every]).encode()).hexdigest()[:8]
    name = f"{file}-{method}-{digest}-s{seed}"
    values["run"] = {"seed": seed, "out": str(OUT), "name": name, "evaluate_every": every or rounds}
    if (OUT / name / "summary.json").exists():
        return potluck.open_run(OUT / name)
    shutil.rmtree(OUT / name, ignore_errors=True)
    values["wire"] = {**values.get("wire", {}), "clip": 0}  # nobody attacks: the methods as published
    return potluck.run(override(values, settings))


def show(label: str, values: list[float], scale: float = 100.0) -> None:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    print(f"{label:46s} {scale * statistics.mean(values):7.2f} ± {scale * spread:5.2f}", flush=True)


def accuracy(label: str, seeds: int, file: str, method: str = "clusterfl", *settings: str) -> list[float]:
    values = [ran(file, seed, method, settings=settings).summary["accuracy"]["mean"] for seed in range(seeds)]
    show(label, values)
    return values


def above(label: str, ours: list[float], theirs: list[float]) -> None:
    """A paired difference, seed by seed."""
    show(label, [a - b for a, b in zip(ours, theirs, strict=True)])


def latest(run: Run, name: str) -> Any:
    rows = [row for row in run.table("records") if row["name"] == name]
    return json.loads(rows[-1]["value"]) if rows else None


def agreement(run: Run, part: int = 0) -> float:
    """Adjusted Rand index of the last clusters with a part of the clients' names: 0 is `room` of `room-1`, 1 is `1`."""
    rows = {row["client"]: row["cluster"] for row in run.table("clusters")}
    return float(adjusted_rand_score([name.split("-")[part] for name in rows], list(rows.values())))


def _uwb(file: str, seeds: int, *others: str) -> None:
    local = accuracy(f"{file} local", seeds, file, "local")
    ours = accuracy(f"{file} clusterfl", seeds, file)
    above(f"{file} clusterfl - local", ours, local)
    for method in others:
        accuracy(f"{file} {method}", seeds, file, method)


def uwb_unbalanced(seeds: int) -> None:
    """Table 5."""
    _uwb("uwb_unbalanced", seeds, "fedavg", "ftl", "centralised", "centralised_clusters")


def uwb_20(seeds: int) -> None:
    """Table 4, with the two below."""
    _uwb("uwb_20", seeds, "fedavg", "ftl", "centralised", "centralised_clusters")


def uwb_10(seeds: int) -> None:
    _uwb("uwb_10", seeds, "fedavg", "ftl", "centralised")


def uwb_30(seeds: int) -> None:
    _uwb("uwb_30", seeds, "fedavg", "ftl", "centralised")


def har(seeds: int) -> None:
    local = accuracy("har_20 local", seeds, "har_20", "local")
    accuracy("har_20 fedavg", seeds, "har_20", "fedavg")
    accuracy("har_20 ftl", seeds, "har_20", "ftl")
    ours = accuracy("har_20 clusterfl", seeds, "har_20")
    above("har_20 clusterfl - local", ours, local)


def depth(seeds: int) -> None:
    """Fig. 13: do the clusters follow the places?"""
    accuracy("depth local", seeds, "depth", "local")
    accuracy("depth fedavg", seeds, "depth", "fedavg")
    runs = [ran("depth", seed) for seed in range(seeds)]
    show("depth clusterfl", [run.summary["accuracy"]["mean"] for run in runs])
    show("depth adjusted Rand index with places", [agreement(run) for run in runs], 1.0)
    show("depth adjusted Rand index with node numbers", [agreement(run, 1) for run in runs], 1.0)


def savers(seeds: int) -> None:
    """Client-rounds, bytes and seconds with and without the savers."""
    off = ("method.savers.stragglers=false", "method.savers.select=0")
    variants = {
        "none": off,
        "both": (),
        "stragglers only": off[1:],
        "stragglers of all (Fig. 4)": (*off[1:], "method.savers.stragglers_of=all"),
        "stragglers, released rule": (*off[1:], "method.savers.straggler_factor=10"),
        "selection only": off[:1],
        "strongest first (Fig. 5)": (*off[:1], "method.savers.select_by=strongest"),
        "random": (*off[:1], "method.savers.select_by=random"),
    }
    for file in ("savers_uwb", "savers_har"):
        before: dict[str, list[float]] = {}
        for label, settings in variants.items():
            runs = [ran(file, seed, settings=settings) for seed in range(seeds)]
            found = {
                "accuracy": [100 * run.summary["accuracy"]["mean"] for run in runs],
                "client-rounds": [latest(run, "client_rounds")["asked"] for run in runs],
                "bytes": [run.summary["bytes"]["up"] + run.summary["bytes"]["down"] for run in runs],
                "seconds": [run.summary["virtual_seconds"] for run in runs],
                "joules": [run.summary["energy_joules"] for run in runs],
            }
            before = before or found
            show(f"{file} {label}: accuracy", found["accuracy"], 1.0)
            for name in ("client-rounds", "bytes", "seconds", "joules"):
                share = [1 - a / b for a, b in zip(found[name], before[name], strict=True)]
                show(f"{file} {label}: {name} saved, %", share)
            stated = [latest(run, "saved") for run in runs]
            show(f"{file} {label}: bytes saved, by the server's estimate", [s["bytes"] for s in stated], 1.0)


RATES = (0.05, 0.1, 0.2, 0.35, 0.5)
OTHERS = {  # what else is chosen beside the learning rate
    "clusterfl": ("method.coupling=0.5", "method.coupling=0.8"),
    "ftl": ("method.federated=0.5", "method.federated=0.8"),
}
VALID = ("partition.valid_share=0.25", "run.evaluate_on=valid")


@cache
def chosen(
    file: str, method: str, seeds: int = 5, fixed: tuple[str, ...] = (), rates: tuple[float, ...] = RATES
) -> tuple[str, ...]:
    """The learning rate of a method and one setting more, by the mean over the validation rows of all seeds.

    A seed is another split, and a learning rate may fail on one split only. So all splits have a say. With `fixed`
    settings only the rate is chosen.
    """
    found = {}
    for rate in rates:
        for other in OTHERS.get(method, ("",)) if not fixed else ("",):
            own = (*fixed, *(one for one in (f"method.recipe.lr={rate}", other) if one))
            runs = [ran(file, seed, method, settings=(*own, *VALID)) for seed in range(seeds)]
            found[own] = statistics.mean(run.summary["accuracy"]["mean"] for run in runs)
    best = max(found, key=lambda own: found[own])
    print(f"{file} {method}: {' '.join(best)} ({100 * found[best]:.2f} on validation rows)", flush=True)
    return best


def _people(file: str, seeds: int, *others: str) -> list[Run]:
    """Every method with its chosen settings; the paired differences to ClusterFL; ClusterFL's runs."""
    ours: list[Run] = []
    for method in ("clusterfl", "local", "fedavg", "ftl", *others):
        runs = [ran(file, seed, method, settings=chosen(file, method)) for seed in range(seeds)]
        ours = ours or runs
        for label, key in (("", "mean"), (": worst tenth", "worst_tenth"), (": spread over clients", "std")):
            values = [run.summary["accuracy"][key] for run in runs]
            show(f"{file} {method}{label}", values)
            print(f"    seed by seed: {' '.join(f'{100 * value:.2f}' for value in values)}", flush=True)
            above(f"{file} clusterfl - {method}{label}", [run.summary["accuracy"][key] for run in ours], values)
    return ours


def people(seeds: int) -> None:
    """Fig. 12a with public data: 30 people of UCI-HAR."""
    _people("har_40", seeds)


def disagree(seeds: int) -> None:
    """The same, and half of them call every activity by the next one's name; also Table 2, where clients differ."""
    _people("disagree", seeds, "centralised", "centralised_clusters")


def people_54(seeds: int) -> None:
    """Fig. 12a: 54 people of two sets."""
    runs = _people("people_54", seeds, "centralised", "centralised_clusters")
    show("people_54 adjusted Rand index with the two sets", [agreement(run) for run in runs], 1.0)


def settles(seeds: int) -> None:
    """Fig. 3: how far F moves at each update."""
    for seed in range(seeds):
        run = ran("har_40", seed, every=1, settings=("method.f_every=1", *chosen("har_40", "clusterfl")))
        moves = [json.loads(row["value"]) for row in run.table("records") if row["name"] == "f_change"]
        print(f"|F - F before|_1 at each update, seed {seed}: " + " ".join(f"{move:.3g}" for move in moves), flush=True)


def layers(seeds: int) -> None:
    """Fig. 16a: networks of 1, 2 and 4 layers with ten samples per node, each with its own learning rate."""
    for count, hidden in ((1, "[]"), (2, "[32]"), (4, "[32, 32, 32]")):
        for method in ("local", "fedavg", "ftl", "clusterfl"):
            own = ("model.name=mlp", f"model.hidden={hidden}") if count > 1 else ("model.name=softmax",)
            best = chosen("uwb_10", method, seeds, own, (0.01, 0.03, 0.1, 0.3))
            accuracy(f"uwb_10 {count} layers {method}", seeds, "uwb_10", method, *best)


def latency(seeds: int) -> None:
    """Figs. 15 and 16b: seconds and joules of a whole run, without and with the savers."""
    off = ("method.savers.stragglers=false", "method.savers.select=0")
    for label, method, settings in (
        ("fedavg", "fedavg", ()),
        ("clusterfl without savers", "clusterfl", off),
        ("clusterfl with savers", "clusterfl", ()),
    ):
        runs = [ran("savers_uwb", seed, method, settings=settings) for seed in range(seeds)]
        show(f"savers_uwb {label}: seconds", [run.summary["virtual_seconds"] for run in runs], 1.0)
        show(f"savers_uwb {label}: joules", [run.summary["energy_joules"] for run in runs], 1.0)


def rho(seeds: int) -> None:
    """Fig. 16c: the objective over the rounds for several rho/beta."""
    for ratio in (1, 3, 4.2, 5, 10, 200):
        runs = [ran("rho", seed, every=1, settings=(f"method.rho={ratio * 0.05!r}",)) for seed in range(seeds)]
        curves = [[json.loads(r["value"]) for r in run.table("records") if r["name"] == "objective"] for run in runs]
        shown = " ".join(f"{value:.4g}" for value in curves[0][28:])
        gaps = [json.loads(r["value"]) for r in runs[0].table("records") if r["name"] == "dual_gap"]
        print(f"rho/beta {ratio:<5} |F'W - Omega|/|F'W| after F: " + " ".join(f"{gap:.2g}" for gap in gaps[:12]))
        print(f"rho/beta {ratio:<5} objective from round 29 on, seed 0: {shown}", flush=True)


def opposite(seeds: int) -> None:
    ours = [ran("opposite", seed) for seed in range(seeds)]
    show("opposite adjusted Rand index", [agreement(run) for run in ours], 1.0)
    show("opposite clusterfl", [run.summary["accuracy"]["mean"] for run in ours])
    accuracy("opposite local", seeds, "opposite", "local")
    accuracy("opposite fedavg", seeds, "opposite", "fedavg")
    accuracy("opposite centralised_clusters", seeds, "opposite", "centralised_clusters")


def traces(seeds: int) -> None:
    for label, settings in {"floor 4 Mbit/s": (), "no floor": ("fleet.floor_mbps=0",)}.items():
        runs = [ran("traces", seed, every=5, settings=settings) for seed in range(seeds)]
        show(f"traces {label}: accuracy", [run.summary["accuracy"]["mean"] for run in runs])
        asked = [latest(run, "client_rounds")["asked"] / (30 * run.summary["rounds"]) for run in runs]
        show(f"traces {label}: client-rounds taken part in, %", asked)
        show(f"traces {label}: uploads cut off", [float(run.summary["lost_clients"]) for run in runs], 1.0)
        show(f"traces {label}: seconds", [run.summary["virtual_seconds"] for run in runs], 1.0)
        means = [round(100 * row["mean"], 1) for row in runs[0].table("evaluations")]
        print(f"traces {label}: accuracy every 5 rounds, seed 0: {means}", flush=True)


def noise(seeds: int) -> None:
    """Fig. 17."""
    for sigma in (0.0, 0.01, 0.05, 0.2, 0.5, 1.0):
        for method in ("fedavg", "clusterfl"):
            accuracy(f"noise {sigma:g} {method}", seeds, "noise", method, f"wire.noise={sigma}")


def ablations(seeds: int) -> None:
    """Coupling, similarity, probe and guard on UWB, 20 records per node, settings fixed beforehand."""
    fixed = "method.beta=1.0"
    groups = (("parking-2", "parking-3"), ("corridor-1", "corridor-2", "corridor-3"), ("room-1", "room-2", "room-3"))
    places = "{" + ", ".join(f"{node} = {k}" for k, group in enumerate(groups) for node in group) + "}"
    for label, settings in {
        "beta 0.1": ("method.beta=0.1",),
        "beta 0.3": ("method.beta=0.3",),
        "beta 1": (fixed,),
        "beta 1, admm": (fixed, "method.mode=admm"),
        "beta 1, guard off": (fixed, "method.guard=false"),
        "beta 1, probe from clients": (fixed, "method.probe.source=clients"),
        "beta 1, similarity of weights": (fixed, "method.relation.similarity=weights"),
        "beta 1, one cluster": (fixed, "method.relation.similarity=one"),
        "beta 1, places as clusters": (fixed, "method.relation.similarity=given", f"method.relation.groups={places}"),
        "published alpha 1e-3, beta 5e-4": ("method.beta=5e-4",),
    }.items():
        runs = [ran("uwb_20", seed, settings=settings) for seed in range(seeds)]
        show(f"uwb_20 {label}", [run.summary["accuracy"]["mean"] for run in runs])
        show(f"uwb_20 {label}: adjusted Rand index with places", [agreement(run) for run in runs], 1.0)


FIGURES: Mapping[str, Callable[[int], None]] = {
    one.__name__: one
    for one in (
        uwb_unbalanced, uwb_20, uwb_10, uwb_30, har, people, disagree, people_54, depth, savers, settles, layers,
        latency, rho, opposite, traces, noise, ablations,
    )
}  # fmt: skip

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FIGURES))
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the runs")
    parser.add_argument("--seeds", type=int, default=0, help="5, but 1 for rho")
    asked = parser.parse_args()
    OUT = asked.out
    for name in asked.names or FIGURES:
        if name not in FIGURES:
            parser.error(f"NAME: must be one of {', '.join(FIGURES)}, got {name!r}.")
        FIGURES[name](asked.seeds or (1 if name == "rho" else 5))
