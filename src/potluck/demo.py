"""The demo: five systems, FedAvg and local training only, on Apple Watch exercises and devices of all sizes.

Each arm of each person is a client with its own device. All methods get the same budget: the same number of rounds, two
passes over a client's samples in each, and batches of the same size. `OWN` lists what differs, with the reason.
`scripts/demo_settings.py` chose learning rates and one more setting (`SETTINGS`) on rows set aside from the training
rows; the test rows played no part. The demo names the methods that do not take part, so that they do not seem beaten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from potluck import methods
from potluck.data import Dataset, PartitionSpec, federate
from potluck.data.load import load
from potluck.data.split import TRAIN
from potluck.report import Comparison, Row, Spread
from potluck.report.figures.noise import noise
from potluck.runs import compare
from potluck.runs.results import Run
from potluck.units import listed, percent, plural, quantity

TITLE = "Seven shoulder exercises, twenty arms, unlike devices"
DATA = "watch_exercises_10hz"
ROUNDS, QUICK_ROUNDS = 12, 2
BUDGET = {"recipe.epochs": 2, "recipe.batch": 16}  # of every round, for all methods
OWN: dict[str, dict[str, Any]] = {  # what a method gets besides the budget, and why
    "local": {},
    "fedavg": {},
    "clusterfl": {},
    "echopfl": {"method.legs": 1},  # notes are read between two epochs: half as many stacks to train
    # It trains continuous-time networks only. Its terms are differentiated by differences, as on a board.
    "fedcfc": {
        "model": {"name": "cfc", "hidden": 16, "backbone": 24, "head": 16, "interval": 0.1},
        "method.terms.second": "difference",
    },
    # All samples are there and the phone is always near, as for the other methods. A round of the watches and a round
    # of their access points count as one round.
    "centaur": {
        "fleet.access_point": "raspberry-pi-4",
        "method.cohort": 0,
        "stop.rounds": 2,
        "method.connection.base": 1.0,
        "method.connection.connected": 1.0,
    },
    # Each device trains the widest model that fits. One pass of each kind of tuning per round keeps the demo short.
    "fedconv": {
        "method.sizes.assign": "auto",
        "method.kernels.compress_epochs": 1,
        "method.kernels.dilate_epochs": 1,
        "method.mix.epochs": 1,
    },
}
SETTINGS: dict[str, dict[str, float]] = {  # with the validation accuracy that chose them
    "local": {"recipe.lr": 0.2},  # 0.847
    "fedavg": {"recipe.lr": 0.2},  # 0.773
    "clusterfl": {"recipe.lr": 0.2, "coupling": 0.3},  # 0.754
    "echopfl": {"recipe.lr": 0.2, "clusters.count": 2},  # 0.747
    "fedcfc": {"recipe.lr": 0.02},  # 0.803
    "centaur": {"recipe.lr": 0.1, "selection.beta": 1.0},  # 0.781
    "fedconv": {"recipe.lr": 0.01},  # 0.837
}
DEAR = ("fedcfc", "fedconv", "echopfl", "centaur")  # started first, so that two processes end at about the same time


def experiment(method: str, rounds: int) -> dict[str, Any]:
    """The run of one method, without its settings. A perceptron this small also trains on most microcontrollers."""
    own = dict(OWN[method])
    values: dict[str, Any] = {
        "data": {"source": DATA},
        "server": {
            "share": 0.05
        },  # for methods that tune, probe or pre-train on the server; set aside before the clients get their samples
        "fleet": {"devices": "mixed"},
        "model": own.pop("model", {"name": "mlp", "hidden": [64]}),
        "method": {"name": method, **BUDGET},
        "stop": {"rounds": rounds * own.pop("stop.rounds", 1)},
    }
    for path, value in own.items():
        section, _, key = path.partition(".")
        values[section][key] = value
    return values


def plan(out: str, seeds: int, rounds: int | None = None) -> compare.Plan:
    """The runs of all methods that settings were chosen for, over the first seeds."""
    runs: list[compare.Planned] = []
    for method, chosen in SETTINGS.items():
        values = experiment(method, ROUNDS if rounds is None else rounds)
        values["run"] = {"out": out}
        runs += compare.plan(values, [method], seeds, _said(chosen)).runs
    order = [*DEAR, *(method for method in SETTINGS if method not in DEAR)]
    return compare.Plan(tuple(sorted(runs, key=lambda run: (run.seed, order.index(run.method)))))


def _said(chosen: Mapping[str, float]) -> list[str]:
    return [f"method.{name}={value}" for name, value in chosen.items()]


def trial(method: str, settings: Mapping[str, float], seeds: int) -> compare.Plan:
    """A method with other settings, on the demo's training rows only."""
    values = experiment(method, ROUNDS) | {"data": {"source": "potluck.demo:without_test"}}
    return compare.plan(values, [method], seeds, _said(settings))


def without_test() -> Dataset:
    """The demo's data without its test rows; split again, it gives validation rows."""
    data = load(DATA)
    assert data.subject is not None
    assert data.group is not None
    kept = federate(data, PartitionSpec()).side == TRAIN
    rows = {name: getattr(data, name)[kept] for name in ("x", "y", "subject", "group", "t")}
    return replace(data, name=f"{DATA} without its test rows", **rows)


def welcome(planned: compare.Plan) -> str:
    """What the demo is about to do."""
    seeds = len({run.seed for run in planned.runs})
    rounds = next(run.experiment.stop.rounds for run in planned.runs if run.method == "fedavg")
    absent = [method for method in methods.METHODS if method not in SETTINGS]
    text = (
        f"Potluck demo: {len(planned.runs) // seeds} methods x {plural(seeds, 'seed')}, {rounds} rounds each of "
        f"{BUDGET['recipe.epochs']} passes over each client's samples. 20 clients: ten people, two arms each, a watch "
        "on the wrist, seven exercises to recognise. Devices from microcontroller to PC, all simulated on this machine."
    )
    return f"{text} Not in the demo, but in `potluck compare`: {', '.join(absent)}." if absent else text


def findings(comparison: Comparison, reached: compare.Reached, runs: Sequence[Run]) -> list[str]:
    """The results in words: the best and the last method, costs, and the devices that could not train."""
    rows = [row for row in comparison.rows if row.accuracy and row.worst_tenth and row.bytes_up and row.bytes_down]
    judged = noise(comparison.rows, comparison.best)
    found = [comparison.sentence, *judged]
    if len(rows) > 1:
        found += [_last(rows), _fairest(rows), _bytes(rows), *_time(rows)]
    rest = [note for note in comparison.notes if note not in judged]
    return [*found, *_pace(reached), *_too_small(runs), *rest, *_pairs(rows)]


def _last(rows: Sequence[Row]) -> str:
    last = rows[-1]
    assert last.accuracy is not None
    return (
        f"{last.method} comes last with {percent(last.accuracy.mean)}, on the same samples and devices and with as "
        "many rounds."
    )


def _fairest(rows: Sequence[Row]) -> str:
    ranked = sorted(rows, key=lambda row: -_mean(row.worst_tenth))
    first, last = ranked[0], ranked[-1]
    return (
        f"The worst tenth of the clients does best with {first.method} ({percent(_mean(first.worst_tenth))}) and "
        f"worst with {last.method} ({percent(_mean(last.worst_tenth))})."
    )


def _bytes(rows: Sequence[Row]) -> str:
    moved = {row.method: _mean(row.bytes_up) + _mean(row.bytes_down) for row in rows}
    least, most = min(moved, key=lambda m: moved[m]), max(moved, key=lambda m: moved[m])
    return f"{most} sends the most, {quantity(moved[most], 'B')}; {least} the least, {quantity(moved[least], 'B')}."


def _pace(reached: compare.Reached) -> list[str]:
    times = {method: seconds for method in reached.seconds if (seconds := reached.mean(method)) is not None}
    if not times or reached.target is None:
        return []
    first = min(times, key=lambda method: times[method])
    after = f"after {quantity(times[first], 's')} of virtual time"
    text = f"{first} is the first to reach {percent(reached.target, 0)}, {after}"
    never = [method for method in reached.seconds if method not in times]
    return [f"{text}; {listed(never)} did not reach it with every seed." if never else f"{text}."]


def _time(rows: Sequence[Row]) -> list[str]:
    took = {row.method: row.virtual_seconds.mean for row in rows if row.virtual_seconds}
    if len(took) < 2:
        return []
    least, most = min(took, key=lambda m: took[m]), max(took, key=lambda m: took[m])
    return [
        f"For the same number of rounds the fleet needed {quantity(took[least], 's')} of virtual time with {least} and "
        f"{quantity(took[most], 's')} with {most}."
    ]


def _pairs(rows: Sequence[Row]) -> list[str]:
    if not any(row.name == "centaur" for row in rows):
        return []
    return ["centaur counts rounds of the devices and of their access points separately; its budget is the same."]


def _too_small(runs: Sequence[Run]) -> list[str]:
    """Name the devices with too little memory to train, and with which methods."""
    unfit: dict[str, dict[str, None]] = {}
    for run in runs:
        for row in run.table("events"):
            if row["kind"] == "does-not-fit":
                device = row["detail"].removeprefix("does not fit: ").partition(":")[0]
                unfit.setdefault(device, {})[str(run.experiment.method["name"])] = None
    told = [f"{device} with {listed(list(whose))}" for device, whose in sorted(unfit.items())]
    return [f"Too little memory to train: {'; '.join(told)}."] if told else []


def _mean(spread: Spread | None) -> float:
    assert spread is not None
    return spread.mean
