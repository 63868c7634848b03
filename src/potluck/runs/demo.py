"""The demonstration: many methods on the Apple-Watch exercises, each arm of each person a client on its own device.

Methods take part once settings were chosen for them by `scripts/demo_settings.py NAME`, on rows set aside from the
training rows; the test rows played no part in it. The others are named at the start, so that nobody takes them for
beaten: some need devices or data that this demonstration does not have, or more than its two minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from potluck import methods
from potluck.data import Dataset, PartitionSpec, federate
from potluck.data.load import load
from potluck.data.split import TRAIN
from potluck.report import Comparison, Row, Spread
from potluck.report.units import percent, quantity
from potluck.runs import compare
from potluck.runs.results import Run

TITLE = "Seven shoulder exercises, twenty arms, unlike devices"
DATA = "watch_exercises"
ROUNDS, QUICK_ROUNDS = 80, 3
WORKERS = 2
SETTINGS: dict[str, dict[str, float]] = {  # with the validation accuracy that chose them
    "local": {"lr": 0.2},  # 0.749
    "centralised": {"lr": 0.2},  # 0.877
    "fedavg": {"lr": 0.2},  # 0.829
    "fedprox": {"lr": 0.2, "mu": 0.01},  # 0.835
    "scaffold": {"lr": 0.1},  # 0.836
    "ftl": {"lr": 0.2},  # 0.879
    "fedyogi": {"lr": 0.1, "server_lr": 0.01},  # 0.840
}


def experiment(rounds: int) -> dict[str, Any]:
    """What all methods share. A perceptron this small trains on everything but the microcontrollers of the fleet."""
    return {
        "data": {"source": DATA},
        "fleet": {"devices": "mixed"},
        "model": {"name": "mlp", "hidden": [64]},
        "stop": {"rounds": rounds},
        "run": {"workers": WORKERS},
    }


def plan(out: str, seeds: int, rounds: int | None = None) -> compare.Plan:
    """Every method that settings were chosen for, over the first seeds."""
    values = experiment(ROUNDS if rounds is None else rounds)
    values["run"]["out"] = out
    own = [f"{method}:method.{name}={value}" for method, chosen in SETTINGS.items() for name, value in chosen.items()]
    return compare.plan(values, list(SETTINGS), seeds, own)


def without_test() -> Dataset:
    """The demo's data without the rows it tests on: split again, its test rows serve for validation."""
    data = load(DATA)
    assert data.subject is not None
    assert data.group is not None
    kept = federate(data, PartitionSpec()).side == TRAIN
    rows = {"x": data.x[kept], "y": data.y[kept], "subject": data.subject[kept], "group": data.group[kept]}
    return replace(data, name=f"{DATA} without its test rows", **rows)


def welcome(planned: compare.Plan) -> str:
    """What is about to happen."""
    seeds = len({run.seed for run in planned.runs})
    rounds = planned.runs[0].experiment.stop.rounds
    absent = [method for method in methods.names() if method not in SETTINGS]
    return (
        f"Potluck demo: {len(planned.runs) // seeds} methods x {seeds} seeds, {rounds} rounds each. 20 clients: ten "
        "people, two arms each, a watch on the wrist, seven exercises to tell apart; devices from microcontroller to "
        "PC, all simulated on this machine."
    ) + (f" Not in the demo, but in `potluck compare`: {', '.join(absent)}." if absent else "")


def findings(comparison: Comparison, reached: compare.Reached, runs: Sequence[Run]) -> list[str]:
    """What the table says, in plain words; also who lost, and what the devices had to do with it."""
    rows = [row for row in comparison.rows if row.accuracy and row.worst_tenth and row.bytes_up and row.bytes_down]
    found = [comparison.sentence]
    if len(rows) > 1:
        found += [_last(rows), _fairest(rows), _bytes(rows)]
    return [*found, *_pace(reached), *_too_small(runs), *comparison.notes]


def _last(rows: Sequence[Row]) -> str:
    last = rows[-1]
    assert last.accuracy is not None
    return (
        f"{last.method} comes last with {percent(last.accuracy.mean)}, on the same rows and devices in as many rounds."
    )


def _fairest(rows: Sequence[Row]) -> str:
    ranked = sorted(rows, key=lambda row: -_mean(row.worst_tenth))
    first, last = ranked[0], ranked[-1]
    return (
        f"The worst-off tenth of the clients does best with {first.method} ({percent(_mean(first.worst_tenth))}) and "
        f"worst with {last.method} ({percent(_mean(last.worst_tenth))})."
    )


def _bytes(rows: Sequence[Row]) -> str:
    moved = {row.method: _mean(row.bytes_up) + _mean(row.bytes_down) for row in rows}
    least, most = min(moved, key=lambda m: moved[m]), max(moved, key=lambda m: moved[m])
    return f"{most} moves the most, {quantity(moved[most], 'B')}; {least} the least, {quantity(moved[least], 'B')}."


def _pace(reached: compare.Reached) -> list[str]:
    times = {method: seconds for method in reached.seconds if (seconds := reached.mean(method)) is not None}
    if not times or reached.target is None:
        return []
    first = min(times, key=lambda method: times[method])
    after = f"after {quantity(times[first], 's')} of virtual time"
    text = f"{first} is the first to reach {percent(reached.target, 0)}, {after}"
    never = [method for method in reached.seconds if method not in times]
    return [f"{text}; {_listed(never)} did not get there with every seed." if never else f"{text}."]


def _too_small(runs: Sequence[Run]) -> list[str]:
    """Why some took no part: what the first run told them."""
    for run in runs:
        events = [row["detail"] for row in run.table("events") if row["kind"] == "does-not-fit"]
        if events:
            told = sorted({detail.removeprefix("does not fit: ") for detail in events})
            return [f"Too small to take part in training: {' '.join(told)}"]
    return []


def _mean(spread: Spread | None) -> float:
    assert spread is not None
    return spread.mean


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
