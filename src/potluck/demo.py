"""The demo: people with two minutes of labelled data each, on devices of all sizes, at equal virtual time.

demo.toml beside this file is the comparison, with settings that `potluck tune` chose on validation rows. This module
adds the words before and after it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

from potluck import methods
from potluck.report import Comparison, Row
from potluck.runs import compare
from potluck.runs.experiment import Experiment
from potluck.runs.results import Run
from potluck.units import listed, number, percent, plural, quantity

TITLE = "Two minutes of labelled data each: seven shoulder exercises, twenty arms, unlike devices"
FILE = Path(__file__).with_name("demo.toml")
ROW_SECONDS = 2.56  # of movement in one row
QUICK_SECONDS = 20.0  # of virtual time
ALL_ROWS = (  # measured with three seeds
    "The other situation: with all its rows (69 to 169 each) a client does nearly as well alone. local has 89.8 %, ftl "
    "91.0 % and clusterfl 91.2 %; local sends 94 kB and ftl 27.7 MB. In a "
    "checkout: potluck compare local fedavg ftl clusterfl --experiment src/potluck/demo.toml "
    "--set partition.most_rows=200 --budget virtual_seconds=450"
)


def plan(out: str, seeds: int, seconds: float | None = None) -> compare.Plan:
    """The runs of demo.toml, with its virtual time or another; those that take long come first within a seed."""
    values, names, own = compare.of_file(tomllib.loads(FILE.read_text(encoding="utf-8")))
    values["run"] = {"out": out}
    if seconds is not None:
        values["budget"] = {"virtual_seconds": seconds}
    return compare.plan(values, names, seeds, own)


def welcome(planned: compare.Plan) -> str:
    """What is compared, at which budget and on which devices."""
    chosen = planned.runs[0].experiment
    names = list(dict.fromkeys(run.method for run in planned.runs))
    absent = len(methods.METHODS) - len(names)
    return (
        f"Potluck demo: {listed(names)}, with {plural(len(planned.runs) // len(names), 'seed')} each. 20 clients: ten "
        "people, two arms each, a watch on the wrist, seven exercises to recognise. Each client has "
        f"{_labelled(chosen)}. The fleet ranges from microcontrollers to PCs, all simulated on this machine. Every "
        f"method gets {quantity(_seconds(chosen), 's')} of virtual time. `potluck tune` chose the settings of all "
        f"methods on validation rows. `potluck compare` knows {absent} more methods."
    )


def _labelled(chosen: Experiment) -> str:
    rows = int(chosen.partition["most_rows"])
    return f"{rows} labelled rows, which are {number(round(rows * ROW_SECONDS / 60, 1))} minutes of movement"


def _seconds(chosen: Experiment) -> float:
    return float(chosen.budget.limits["virtual_seconds"])


def findings(comparison: Comparison, runs: Sequence[Run]) -> list[str]:
    """The results in words: who wins and by how much, costs, devices that could not train, and the other regime."""
    return [comparison.sentence, *comparison.notes, *_costs(comparison.rows), *_too_small(runs), ALL_ROWS]


def _costs(rows: Sequence[Row]) -> list[str]:
    """The accuracy of the methods that send the most and the least, and what they send and use."""
    known = [row for row in rows if row.accuracy and row.bytes_up and row.bytes_down and row.joules]
    if len(known) < 2:
        return []
    ranked = sorted(known, key=_moved)
    least, most = _cost(ranked[0]), _cost(ranked[-1])
    return [f"{most[0]} sends the most: {most[1]}. {least[0]} sends the least: {least[1]}."]


def _cost(row: Row) -> tuple[str, str]:
    assert row.accuracy is not None
    drawn = row.all_joules or row.joules
    assert drawn is not None
    energy, accuracy = quantity(drawn.mean, "J"), percent(row.accuracy.mean)
    return row.method, f"{quantity(_moved(row), 'B')} and {energy} for {accuracy}"


def _moved(row: Row) -> float:
    assert row.bytes_up is not None
    assert row.bytes_down is not None
    return row.bytes_up.mean + row.bytes_down.mean


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
