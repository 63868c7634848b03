"""What must hold of every run, whatever happened to it. What does not raises Violation with one sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from potluck.runs.results import Run

TABLES = ("clients", "steps", "evaluations", "accuracies", "tasks", "events", "clusters", "records", "by_class")
FIGURES = ("accuracy", "rounds", "clients", "bytes_up", "bytes_down", "accepted", "lost", "privacy")
TOTALS = ("bytes_up", "bytes_down")


class Violation(AssertionError):
    """Something that must hold does not."""


Models = Mapping[str, Mapping[str, torch.Tensor]]


def models_of(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    """Every tensor file below a folder."""
    return {str(path.relative_to(folder)): load_file(path) for path in sorted(folder.rglob("*.safetensors"))}


@dataclass(frozen=True)
class Left:
    """What a run left, in memory: the rows of its database without wall time, its figures, its models."""

    tables: dict[str, list[dict[str, Any]]]
    summary: dict[str, Any]
    models: Models

    @classmethod
    def of(cls, run: Run, models: Models) -> Left:
        tables = {name: run.table(name) for name in TABLES}
        for row in tables["steps"]:
            del row["wall"]
        return cls(tables, dict(run.summary), models)


def same_models(found: Models, wanted: Models, what: str) -> None:
    """Two runs ended with the same tensors, bit by bit."""
    if found.keys() != wanted.keys():
        raise Violation(f"{what}: the files {sorted(found.keys() ^ wanted.keys())[:3]} are in one run only.")
    for file, tensors in wanted.items():
        for name, value in tensors.items():
            if not torch.equal(found[file][name].nan_to_num(), value.nan_to_num()):
                raise Violation(f"{what}: {name!r} of {file} differs.")


def same_rows(found: Left, wanted: Left) -> None:
    """Two runs recorded the same steps, tasks, events and scores."""
    for name, rows in found.tables.items():
        theirs = wanted.tables[name]
        if rows != theirs:
            pairs = enumerate(zip(rows, theirs, strict=False))
            first = next((i for i, (one, other) in pairs if one != other), min(len(rows), len(theirs)))
            counts = f"{len(rows)} and {len(theirs)} rows"
            raise Violation(f"same rows: table {name} of run.db differs from row {first} on ({counts}).")
    for name in FIGURES:
        if found.summary.get(name) != wanted.summary.get(name):
            raise Violation(f"same figures: {name} is {found.summary.get(name)}, not {wanted.summary.get(name)}.")


def bytes_add_up(run: Run) -> None:
    """The totals of the steps and of the summary are the sums over the tasks, and no task is counted twice."""
    tasks, steps = run.table("tasks"), run.table("steps")
    for name in TOTALS:
        total = sum(task[name] for task in tasks)
        if steps and steps[-1][name] != total:
            raise Violation(f"bytes add up: {name} of the last step is {steps[-1][name]}, of all tasks {total}.")
        if any(after[name] < before[name] for before, after in pairwise(steps)):
            raise Violation(f"bytes add up: {name} falls from one step to the next.")
    taken = [task["number"] for task in tasks if task["outcome"] == "accepted" and task["number"] >= 0]
    if len(taken) != len(set(taken)):
        raise Violation("tasks are counted once: an update was accepted twice.")


def ledger_kept(run: Run, epsilon: float) -> None:
    """No device was charged more than its budget, and what the report says is what its charges come to."""
    told = run.summary["privacy"]
    for client, spent in told["per_client"].items():
        if spent > epsilon:
            raise Violation(f"the ledger is never overspent: {client} was charged {spent:g} of {epsilon:g}.")
    if told["spent"] != max(told["per_client"].values(), default=0.0):
        raise Violation(f"the ledger adds up: {told['spent']:g} is not the largest charge of a device.")


def well_formed(run: Run) -> None:
    """The run ended, and every figure in its files is a number."""
    if not run.summary.get("ended"):
        raise Violation("the run ends: summary.json does not say why it ended.")
    for step in run.table("steps"):
        if not all(math.isfinite(step[name]) for name in ("virtual", "wall") if step[name] is not None):
            raise Violation(f"figures are numbers: step {step['step']} has {step}.")
    parts = [path.name for path in run.folder.rglob(".*.part")]
    if parts:
        raise Violation(f"leftovers are removed: {parts[0]} is still there.")


def all_finite(run: Run, models: Models) -> None:
    """No table, figure or model of a run has a number that is not finite."""
    for file, tensors in models.items():
        for name, value in tensors.items():
            if value.is_floating_point() and not bool(torch.isfinite(value).all()):
                raise Violation(f"numbers are finite: {name!r} of {file} is not.")
    for table in TABLES:
        for row in run.table(table):
            for name, one in row.items():
                if isinstance(one, float) and not math.isfinite(one):
                    raise Violation(f"numbers are finite: {name} in table {table} of run.db is {one}.")
    for name, one in run.summary.items():
        if isinstance(one, float) and not math.isfinite(one):
            raise Violation(f"numbers are finite: {name} of summary.json is {one}.")
