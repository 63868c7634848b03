"""Which method wins where: a map from a grid of real runs.

    python experiments/when/map.py --seeds 5 --jobs 2 --out runs/when

Each data set is looked at in eight situations: few or many labelled rows per client, people who are alike or unlike,
devices that are alike or unlike. Every method gets the same passes over each client's samples, and settings tuned on
validation rows. Where devices are alike, the accuracy is that after the same passes. Where they are unlike, it is that
at the same virtual time, the median over the methods of what their runs took: waiting for slow devices costs time, not
passes. FedConv trains on 2 % of the rows at the server before the run, the other methods do not. So each cell also
names the best method without it, and `--pretrain 20` gives that to all.

The script can be stopped and started anew: finished runs stay. It ends with a table for each data set, map.json and
map.png in the folder. `--cells few` runs the situations whose name holds that word.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from potluck import files, report
from potluck.cli.progress.line import Quiet
from potluck.needs import PRETRAINING
from potluck.report import Pair
from potluck.report.figures.budgets import accuracy_at, limit_of
from potluck.report.figures.resources import resources_of
from potluck.report.figures.scores import mean_of, of_groups
from potluck.report.reading.groups import group
from potluck.report.reading.infers import with_own_models
from potluck.runs import compare
from potluck.runs.results import Run
from potluck.tune import result, tuning
from potluck.tune.chosen import kept
from potluck.tune.request import Request

METHODS = ("local", "fedavg", "ftl", "clusterfl", "echopfl", "fedcfc", "centaur", "fedconv")
DATA = ("uci_har_10hz", "motionsense_10hz", "watch_exercises_10hz", "mnist")
PASSES = 20  # over each client's samples
ROWS = {"few": 12, "many": 80}  # labelled rows per client
DEVICES = {"alike": "raspberry-pi-4", "unlike": "mixed"}
TRIALS = 5  # settings tried per method, the default ones included
RISK = 0.05
# Settings that all methods of a cell share, and what one method needs to be itself within minutes.
COMMON = ("method.recipe.epochs=1", "method.recipe.batch=16")
PERCEPTRON = ("model.name=mlp", "model.hidden=[64]")  # of all but fedcfc, which trains its own kind of network
OWN = {
    "centaur": ("method.cohort=0",),  # all pairs in every round, as for the others
    "echopfl": ("method.legs=1",),  # broadcasts are read between two tasks
    "fedcfc": ("method.terms.second=difference",),  # its terms are differentiated by differences, as on a board
    "fedconv": ("method.kernels.compress_epochs=1", "method.kernels.dilate_epochs=1", "method.mix.epochs=1"),
}


@dataclass(frozen=True)
class Cell:
    """One situation."""

    data: str
    rows: str  # few, many
    people: str  # alike, unlike
    devices: str  # alike, unlike
    pretrain: int = 0  # epochs on the server rows for every method; 0: as each method has it

    @property
    def name(self) -> str:
        name = f"{self.data}-{self.rows}-rows-{self.people}-people-{self.devices}-devices"
        return f"{name}-pretrained" if self.pretrain else name

    @property
    def situation(self) -> str:
        return f"{self.rows} rows, {self.people} people, {self.devices} devices"

    @property
    def tuned_as(self) -> Cell:
        """The cell whose settings it uses: they are tuned once for both kinds of fleet, where all devices can train."""
        return Cell(self.data, self.rows, self.people, "alike")

    @property
    def methods(self) -> list[str]:
        return [name for name in METHODS if name != "fedcfc" or self.data != "mnist"]  # it trains on series

    def values(self) -> dict[str, Any]:
        """The experiment that all methods share."""
        partition: dict[str, Any] = {"most_rows": ROWS[self.rows]}
        values: dict[str, Any] = {
            "data": {"source": self.data},
            "partition": partition,
            "fleet": {"devices": DEVICES[self.devices]},
            "server": {"share": 0.02, **({"pretrain": self.pretrain} if self.pretrain else {})},
            "budget": {"local_passes": PASSES},
        }
        if self.data == "mnist":  # no natural people: the proportions of classes make clients alike or unlike
            partition |= {"kind": "dirichlet", "clients": 20, "alpha": 10.0 if self.people == "alike" else 0.1}
        elif self.people == "unlike":  # half of the people call each activity by the name of the next one
            values["drift"] = {"at": [0.0], "kind": "labels", "clients": 0.5}
        return values

    def plan(self, seeds: int) -> compare.Plan:
        own = [f"{name}:{setting}" for name in self.methods for setting in OWN.get(name, ())]
        own += [f"{name}:{setting}" for name in self.methods if name != "fedcfc" for setting in PERCEPTRON]
        return compare.plan(self.values(), self.methods, seeds, [*COMMON, *own])


def cells(data: Sequence[str], word: str = "", pretrain: int = 0) -> Iterator[Cell]:
    for source, rows, people, devices in itertools.product(data, ROWS, ("alike", "unlike"), DEVICES):
        cell = Cell(source, rows, people, devices, pretrain)
        if word in cell.name:
            yield cell


REQUEST = Request(trials=TRIALS, seeds=1)


def compared(cell: Cell, out: Path, seeds: int, jobs: int) -> list[Run]:
    on = cell.tuned_as
    chosen = kept(tuning.split_fixed(on.plan(1), REQUEST), REQUEST, out / "tuning" / on.name, Quiet(), jobs)
    planned = result.with_chosen(tuning.split_fixed(cell.plan(seeds), REQUEST), chosen)
    return compare.carry_out(planned, out / cell.name, Quiet(), True, jobs)


@dataclass(frozen=True)
class Verdict:
    """What one cell of the map shows."""

    cell: Cell
    accuracy: dict[str, float]  # method, or "fedavg, own" -> mean over clients and seeds
    std: dict[str, float | None]  # over seeds
    best: str
    level: list[str]  # methods that these seeds cannot tell from the best (paired t, Holm)
    alone: str  # the best of the methods that have no pre-training at the server, where others do
    seconds: float | None  # of virtual time, where that is what is equal


def verdict(cell: Cell, runs: Sequence[Run]) -> Verdict:
    groups = group(runs).groups
    limit = limit_of(groups, "virtual_seconds") if cell.devices == "unlike" else None
    own = [variant for one in groups if (variant := with_own_models(one)) is not None]
    read = (lambda run: accuracy_at(run, limit)) if limit is not None else mean_of
    found = of_groups([*groups, *own], mean=read)
    statistics = report.statistics_of(found)
    means = {name: float(np.mean(list(seeds.values()))) for name, seeds in found.means.items()}
    best = max(means, key=lambda name: means[name])
    pairs = [pair for pair in statistics.pairs if best in (pair.method, pair.other)]
    level = [_rival(pair, best) for pair in pairs if pair.p_best is None or pair.p_best > RISK]
    std = {name: float(np.std(list(seeds.values()), ddof=1)) if len(seeds) > 1 else None
           for name, seeds in found.means.items()}  # fmt: skip
    others = [one.label for one in groups if PRETRAINING not in resources_of(one)]
    apart = 0 < len(others) < len(groups)
    fair = [name for name in means if name.removesuffix(", own") in others]
    alone = max(fair, key=lambda name: means[name]) if apart else ""
    return Verdict(cell, means, std, best, level, alone, limit.amount if limit is not None else None)


def _rival(pair: Pair, best: str) -> str:
    return pair.other if pair.method == best else pair.method


def table(verdicts: Sequence[Verdict]) -> str:
    """One data set as a Markdown table: situations down, methods across, the best in bold, its equals in italics."""
    names = list(dict.fromkeys(name for one in verdicts for name in sorted(one.accuracy, key=_order)))
    names.sort(key=_order)
    rows = [f"| {' | '.join(['rows', 'people', 'devices', *names])} |", "|" + "---|" * (3 + len(names))]
    for one in verdicts:
        shown = []
        for name in names:
            if name not in one.accuracy:
                shown.append("")
                continue
            std = one.std[name]
            text = f"{one.accuracy[name]:.3f}" + ("" if std is None else f" ± {std:.3f}")
            mark = "**" if name == one.best else "*" if name in one.level else ""
            shown.append(f"{mark}{text}{mark}")
        rows.append(f"| {' | '.join([one.cell.rows, one.cell.people, one.cell.devices, *shown])} |")
    return "\n".join(rows)


def _order(name: str) -> tuple[int, bool]:
    return METHODS.index(name.removesuffix(", own")), name.endswith(", own")


def draw(verdicts: Sequence[Verdict], path: Path) -> None:
    """The map as a picture: a column for each data set, a row for each situation, the winner in its colour."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    from potluck.report.drawing.styles import styles_of

    styles = styles_of((name, name) for name in METHODS)
    data = list(dict.fromkeys(one.cell.data for one in verdicts))
    situations = list(dict.fromkeys(one.cell.situation for one in verdicts))
    figure = Figure(figsize=(2.2 + 2.5 * len(data), 0.9 + 0.62 * len(situations)), layout="constrained")
    axes = figure.add_subplot()
    for one in verdicts:
        x, y = data.index(one.cell.data), situations.index(one.cell.situation)
        clear = not one.level
        axes.add_patch(
            Rectangle(
                (x, y),
                0.96,
                0.92,
                facecolor=styles[one.best.removesuffix(", own")].colour,
                alpha=0.85 if clear else 0.35,
                linewidth=0,
            )
        )
        ink = "white" if clear else "black"
        axes.text(x + 0.48, y + 0.34, f"{one.best} {one.accuracy[one.best]:.2f}", ha="center", va="center", color=ink)
        small = "clear" if clear else f"level: {', '.join(one.level[:3])}{' …' if len(one.level) > 3 else ''}"
        if one.alone and one.best != one.alone:
            small = f"without pre-training: {one.alone} {one.accuracy[one.alone]:.2f}"
        axes.text(x + 0.48, y + 0.68, small, ha="center", va="center", fontsize=6.5, color=ink)
    axes.set_xlim(0, len(data))
    axes.set_ylim(len(situations), 0)
    axes.set_xticks([i + 0.48 for i in range(len(data))], data)
    axes.set_yticks([i + 0.46 for i in range(len(situations))], situations)
    axes.tick_params(length=0)
    axes.xaxis.tick_top()
    for side in axes.spines.values():
        side.set_visible(False)
    figure.savefig(path, dpi=150)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--data", nargs="+", default=list(DATA), metavar="DATA", help="data sets")
    parser.add_argument("--cells", default="", metavar="WORD", help="only situations whose name holds this word")
    parser.add_argument(
        "--pretrain", type=int, default=0, metavar="EPOCHS", help="on the server rows, for every method"
    )
    parser.add_argument("--seeds", type=int, default=5, metavar="K")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="runs at a time")
    parser.add_argument("--out", type=Path, default=Path("runs/when"), metavar="DIR")
    asked = parser.parse_args(arguments)
    found: list[Verdict] = []
    began = time.monotonic()
    todo = list(cells(asked.data, asked.cells, asked.pretrain))
    for number, cell in enumerate(todo, 1):
        found.append(verdict(cell, compared(cell, asked.out, asked.seeds, asked.jobs)))
        one = found[-1]
        equals = f", level with {', '.join(one.level)}" if one.level else ""
        minutes = (time.monotonic() - began) / 60
        line = f"{number} of {len(todo)}, {minutes:.0f} min: {cell.data}, {cell.situation}: {one.best} "
        print(f"{line}{one.accuracy[one.best]:.3f}{equals}", flush=True)
        files.write_json(asked.out / "map.json", [asdict(each) for each in found])
    for source in asked.data:
        mine = [one for one in found if one.cell.data == source]
        if mine:
            print(f"\n{source}\n\n{table(mine)}")
    if found:
        draw(found, asked.out / "map.png")
        print(f"\nmap: {asked.out / 'map.json'}, {asked.out / 'map.png'}")


if __name__ == "__main__":
    try:
        main()
    except (KeyboardInterrupt, compare.Interrupted):
        sys.exit("stopped; the same command goes on from here")
