"""The archive: full runs, looks and dry runs of many situations, on which predictions are tested.

A *situation* is a data set, a partition and a fleet. Records are lines of JSON, one file per data set; what is there is
not made again.
"""

from __future__ import annotations

import json
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from potluck.choose.facts import skew
from potluck.planner import look as looks
from potluck.planner.dry import dry_run
from potluck.runs import compare_plan, drive
from potluck.runs.deal import federation_of
from potluck.runs.experiment import Experiment, as_toml
from potluck.runs.results import Run

LOOK_SEEDS = (looks.SEED, looks.SEED + 500)
LONGEST = 0.4  # of a run, that a look in the archive trains
DRY_SEEDS = (1000, 1001, 1002)  # of dry runs that predict other seeds
FEWEST_CLIENTS = 15  # of a set without natural clients
MOST_STEPS = 41  # of a dry run that are kept
Figures = Callable[[Experiment], Mapping[str, Any] | None]


@dataclass(frozen=True)
class Situation:
    """Where methods are compared."""

    data: str
    partition: str
    fleet: str

    @property
    def name(self) -> str:
        return f"{self.data}/{self.partition}/{self.fleet}"


@dataclass(frozen=True)
class Spec:
    """What an archive holds (`experiments/plan/archive.toml`)."""

    methods: tuple[str, ...]
    fleets: tuple[str, ...]
    seeds: int
    passes: float
    sets: Mapping[str, str]
    partitions: Mapping[str, Mapping[str, Any]]
    settings: Mapping[str, Any]
    small: Mapping[str, Sequence[int]] = field(default_factory=dict)  # by method: passes of whole runs in small

    @classmethod
    def read(cls, path: Path) -> Spec:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        return cls(**{**found, "methods": tuple(found["methods"]), "fleets": tuple(found["fleets"])})

    def situations(self) -> list[Situation]:
        """All of them, set by set for one partition and fleet after the other, so that a part covers all sets."""
        turns = [(p, f) for f in range(len(self.fleets)) for p in range(len(self.partitions))]
        return [
            Situation(data, list(self.partitions)[p], self.fleets[(p + f) % len(self.fleets)])
            for p, f in turns
            for data in self.sets
        ]

    def experiments(self, there: Situation) -> Iterator[tuple[str, int, Experiment]]:
        """The runs that `potluck compare` would make in a situation."""
        partition = {"kind": self.sets[there.data], **self.partitions[there.partition]}
        if partition["kind"] == "iid":
            partition["clients"] = FEWEST_CLIENTS
        values = {"data": {"source": there.data}, "partition": partition, "fleet": {"devices": there.fleet}}
        values["budget"] = {"local_passes": self.passes}
        settings = [f"{name}={as_toml(value)}" for name, value in self.settings.items()]
        for run in compare_plan.plan(values, self.methods, self.seeds, settings).runs:
            yield run.method, run.seed, run.experiment


def make(spec: Spec, there: Situation, path: Path) -> None:
    """Make the records of one situation that are not yet in the file."""
    known = {(one["kind"], one["situation"], one["method"], one["seed"]) for one in read(path)}

    def add(kind: str, method: str, seed: int, make_it: Figures, experiment: Experiment) -> None:
        if (kind, there.name, method, seed) in known:
            return
        known.add((kind, there.name, method, seed))
        record = {"kind": kind, "situation": there.name, "method": method, "seed": seed, **(make_it(experiment) or {})}
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(_rounded(record)) + "\n")

    for method, seed, experiment in spec.experiments(there):
        add("full", method, seed, _full, experiment)
        if seed == 0:
            add("facts", "", 0, facts, experiment)
            add("dry", method, 0, _dry, experiment)
            for seed in LOOK_SEEDS:
                add("look", method, seed, partial(_look, seed=seed), experiment)
            for passes in spec.small.get(method, ()):
                for seed in LOOK_SEEDS:
                    add(f"small {passes}", method, seed, partial(_small, passes=passes, seed=seed), experiment)
            for other in DRY_SEEDS:
                add("dry", method, other, _dry, experiment.with_(run={"seed": other}))


def read(path: Path) -> list[dict[str, Any]]:
    """The records of a file, or of all files of a folder."""
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path] if path.exists() else []
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def facts(experiment: Experiment) -> dict[str, float]:
    """What the data says before any training."""
    federation = federation_of(experiment)
    return {
        "clients": len(federation),
        "rows": float(np.median(federation.sizes)),
        "classes": federation.dataset.classes,
        "skew": skew(federation),
    }


def _full(experiment: Experiment) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="potluck-archive-") as folder:
        return figures(drive.start(experiment.with_(run={"out": folder, "name": "full"})))


def _dry(experiment: Experiment) -> dict[str, Any]:
    with dry_run(experiment) as (run, _):
        rows = run.table("steps")
        rows = [rows[int(i)] for i in np.unique(np.linspace(0, len(rows) - 1, MOST_STEPS).round())]
        return {**figures(run), "steps": {key: [row[key] for row in rows] for key in ("passes", "virtual", "joules")}}


def _look(experiment: Experiment, seed: int) -> dict[str, Any] | None:
    """A look that is longer than a plan's: every shorter one is a part of it."""
    seen = looks.look(experiment, LONGEST, seed)
    return None if seen is None else asdict(seen)


def _small(experiment: Experiment, passes: int, seed: int) -> dict[str, Any]:
    return asdict(looks.in_small(experiment, passes, seed))


def figures(run: Run) -> dict[str, Any]:
    """The figures of a run that predictions are compared with, and its curve."""
    summary, steps = run.summary, {row["step"]: row for row in run.table("steps")}
    seen = [(steps[row["step"]], row["mean"]) for row in run.table("evaluations")]
    found = {
        "up": summary["bytes"]["up"],
        "down": summary["bytes"]["down"],
        "seconds": summary["virtual_seconds"],
        "joules": summary["energy"]["total"],
        "passes": summary["local_passes"],
        "macs": summary["macs"],
        "ended": summary["ended"][:40],
        "wall": summary["wall_seconds"],
    }
    if seen:
        found["scores"] = [score for _, score in seen]
        found["curve"] = {key: [row[key] for row, _ in seen] for key in ("passes", "virtual", "joules")}
    return found


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, Mapping):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value
