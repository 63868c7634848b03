"""All methods on seven data sets, tuned with equal budgets: the tables and the rank plot of docs/results.md.

    python experiments/results/table.py                                  # everything, a night on two cores
    python experiments/results/table.py --data uci_har --only ditto      # one row
    python experiments/results/table.py --read                           # run nothing, show what is there

A row is one comparison with one method, as `potluck compare` makes it: settings chosen on validation rows, then five
seeds. Rows are kept: the same command continues after an interruption. The tables go to tables.md in the folder, all
figures to results.json, the picture to ranks.png. A row that could not be run stays empty.

With `--page`, the tables also go into that page. What the folder has no run of stays there as it is: a whole table, or
a row, which then gets a mark. The picture is drawn from the page's tables.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Collection, Mapping, Sequence, Sized
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from potluck import __version__ as VERSION
from potluck import files, methods
from potluck.cli.progress.line import Quiet
from potluck.errors import BadInput
from potluck.report.figures.comparison import Spread, spread
from potluck.report.figures.pairs import pair
from potluck.report.figures.ranks import Ranks, over_datasets
from potluck.report.figures.ranks import ranks as ranks_of
from potluck.runs import compare
from potluck.runs.experiment import read_toml
from potluck.runs.results import Run
from potluck.tune import result, tuning
from potluck.tune.chosen import kept
from potluck.tune.request import Request

HERE = Path(__file__).parent
DATA = {
    "watch": "Watch: seven exercises, 20 arms",
    "uci_har": "UCI-HAR: six activities, 30 people",
    "motionsense": "MotionSense: six activities, 24 people",
    "sp_sw_har": "Phone and watch: five activities, 46 devices of 23 people",
    "spoken_digits": "Spoken digits: six speakers",
    "mnist": "MNIST: 20 clients, Dirichlet 0.1",
    "cifar10": "CIFAR-10: 20 clients, Dirichlet 0.1",
}
OLDER, NEWER = "†", "‡"  # mark rows of the page that were not run again, or those that were
TABLES = "## All figures"  # the heading of the page below which the tables stand
REQUEST = Request(trials=5, seeds=1)
NOT_MADE_FOR = {"fedcfc": ("mnist", "cifar10")}  # it trains on series
METHODS = [name for name in methods.names() if name != "compose"]  # that one is what its parts make it
NOTHING = "No row has been run."
ROWS = ("0", "1", "5")  # labelled rows of each class that a newcomer has


@dataclass(frozen=True)
class Row:
    """One method on one data set; figures are means over seeds."""

    method: str
    seeds: list[int]
    accuracy: Spread
    by_seed: dict[int, float]
    worst_tenth: Spread | None
    newcomers: dict[str, Spread | None]
    seconds: Spread | None
    megabytes: Spread | None
    joules: Spread | None
    all_joules: Spread | None  # waiting included
    model: str
    chosen: dict[str, Any]


def carry_out(data: str, method: str, out: Path, seeds: int, jobs: int) -> None:
    """Tune one method on one data set and run its seeds, as far as they are not there."""
    values, _, own = compare.of_file(read_toml(HERE / f"{data}.toml"))
    mine = [setting for setting in own if setting.startswith(f"{method}:")]
    planned = tuning.split_fixed(compare.plan(values, [method], seeds, mine), REQUEST)
    folder = out / data / method
    chosen = kept(planned, REQUEST, folder / result.PLACE, Quiet(), jobs)
    compare.carry_out(result.with_chosen(planned, chosen), folder, Quiet(), True, jobs)


def read(data: str, method: str, out: Path, seeds: int) -> Row | None:
    """The row from the runs that are finished; None if there is none."""
    runs = [Run(folder) for folder in sorted((out / data / method).glob(f"{method}-s*"))]
    done = {run.experiment.run.seed: run.summary for run in runs if compare.state_of(run) == "finished"}
    done = {seed: summary for seed, summary in sorted(done.items())[:seeds] if summary["accuracy"]["mean"] is not None}
    if not done:
        return None

    def over(figure: Any) -> Spread | None:
        values = [figure(summary) for summary in done.values()]
        return spread([value for value in values if value is not None])

    accuracy = over(lambda s: s["accuracy"]["mean"])
    assert accuracy is not None
    tuned = read_json(out / data / method / result.PLACE / result.FILE)["methods"][method]
    return Row(
        method,
        list(done),
        accuracy,
        {seed: summary["accuracy"]["mean"] for seed, summary in done.items()},
        over(lambda s: s["accuracy"]["worst_tenth"]),
        {rows: over(lambda s, rows=rows: s["newcomers"]["rows"][rows]["mean"]) for rows in ROWS},
        over(lambda s: s["virtual_seconds"]),
        over(lambda s: (s["bytes"]["up"] + s["bytes"]["down"]) / 1e6),
        over(lambda s: s["energy_joules"]),
        over(lambda s: s["energy_joules"] + s["idle_joules"]),
        next(iter(done.values()))["model"],
        tuned["chosen"],
    )


def read_json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def level(rows: Sequence[Row]) -> set[str]:
    """The methods whose difference to the best has a 95 % interval with 0 in it (paired t, not corrected)."""
    best = max(rows, key=lambda row: row.accuracy.mean)
    gaps = {row.method: pair(row.method, best.method, row.by_seed, best.by_seed).t for row in rows if row is not best}
    return {name for name, t in gaps.items() if t is None or t.low <= 0.0 <= t.high}


@dataclass(frozen=True)
class Older:
    """A row of the page that has no run here: its name and figures as they stand there."""

    name: str
    cells: list[str]

    @property
    def mean(self) -> float:
        return float(self.cells[0].split()[0])


def older_rows(section: str) -> dict[str, Older]:
    """The rows with figures of one table of the page, by method, without marks."""
    found = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        name = re.match(r"`(\w+)`(?: \(\w+\))?", cells[0])
        if name and len(cells) > 1 and cells[1]:
            found[name[1]] = Older(name[0], [cells[1].strip("*"), *cells[2:]])
    return found


def sections(page: str) -> dict[str, tuple[str, str]]:
    """The words above the table of each data set, and the table, by the set's name."""
    parts = re.split(r"^### .*\n\n`(\w+)`((?:.|\n(?!\n))*)\n\n", page.partition(TABLES)[2], flags=re.MULTILINE)
    return {
        name: (words, body.strip()) for name, words, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True)
    }


def about(data: str, rows: Mapping[str, Row | None], older: Collection[str]) -> str:
    """The words above a table: the name of the set, the seeds of its rows, and which rows are older."""
    new = [row for row in rows.values() if row is not None]
    counts = sorted({len(row.seeds) for row in new})
    seeds = " or ".join(map(str, counts)) + (" seed" if counts == [1] else " seeds")
    if not older:
        return f"`{data}`, {seeds}, Potluck {VERSION}."
    few = f"{OLDER} marks rows of an earlier version" if mark_older(new, older) else f"{NEWER} marks the rows run last"
    return f"`{data}`, {seeds}, Potluck {VERSION}. {few}; beside them no italics mark a difference."


def mark_older(new: Sized, older: Sized) -> bool:
    """Whether the older rows get the mark: the fewer do."""
    return len(older) < len(new)


def table(rows: Mapping[str, Row | None], older: Mapping[str, Older], usual: str) -> str:
    """One data set as Markdown: the best method first and in bold, those level with it in italics.

    A method with another model than `usual` has its name beside it.
    Rows of `older` have no run here and keep their figures. They have none by seed, so then there are no italics.
    """
    head = ["method", "mean", "worst tenth", *(f"new, {count}" for count in ROWS), "time", "MB", "J", "J with idle"]
    there = [row for row in rows.values() if row is not None]
    best = max([*(row.accuracy.mean for row in there), *(one.mean for one in older.values())])
    alike = level(there) if there and not older else set()
    marked = mark_older(there, older)
    lines: list[tuple[float, str]] = []
    for row in there:
        mark = "**" if row.accuracy.mean == best else "*" if row.method in alike else ""
        news = [_share(row.newcomers[count]) for count in ROWS]
        costs = [_plain(row.seconds), _plain(row.megabytes), _plain(row.joules), _plain(row.all_joules)]
        name = f"`{row.method}`" if row.model == usual else f"`{row.method}` ({row.model})"
        name += f" {NEWER}" if older and not marked else ""
        cells = [name, f"{mark}{_interval(row.accuracy)}{mark}", _share(row.worst_tenth), *news, *costs]
        lines.append((row.accuracy.mean, f"| {' | '.join(cells)} |"))
    for one in older.values():
        mark = "**" if one.mean == best else ""
        cells = [f"{one.name} {OLDER}" if marked else one.name, f"{mark}{one.cells[0]}{mark}", *one.cells[1:]]
        lines.append((one.mean, f"| {' | '.join(cells)} |"))
    empty = [method for method, row in rows.items() if row is None and method not in older]
    rest = [f"| `{method}` |{' |' * (len(head) - 1)}" for method in empty]
    top = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*top, *(line for _, line in sorted(lines, key=lambda one: -one[0])), *rest])


def _interval(found: Spread) -> str:
    if found.low is None or found.high is None:
        return f"{found.mean:.3f}"
    return f"{found.mean:.3f} ± {(found.high - found.low) / 2:.3f}"


def _share(found: Spread | None) -> str:
    return "" if found is None else f"{found.mean:.3f}"


def _plain(found: Spread | None) -> str:
    return "" if found is None else f"{found.mean:.3g}" if found.mean < 1000 else f"{found.mean:,.0f}"


def draw(places: Mapping[str, Mapping[str, float]], found: Ranks, path: Path) -> None:
    """Average ranks over the data sets: a large dot for each method, small ones for its rank on each set."""
    from matplotlib.figure import Figure

    names = list(found.average)
    figure = Figure(figsize=(7.5, 1.3 + 0.2 * len(names)), layout="constrained")
    axes = figure.add_subplot()
    marks = "osDv^<>PX*"
    colours = [f"C{i}" for i in range(10)]
    for i, (data, by_method) in enumerate(places.items()):
        ordered = sorted(names, key=lambda name: -by_method[name])
        ranks = [ordered.index(name) + 1 for name in names]
        axes.scatter(
            ranks, range(len(names)), s=14, marker=marks[i % len(marks)], color=colours[i % 10], alpha=0.55, label=data
        )
    axes.scatter(list(found.average.values()), range(len(names)), s=46, color="black", zorder=3, label="average")
    if found.critical_difference is not None:
        first = found.average[names[0]]
        axes.axvspan(first, first + found.critical_difference, color="black", alpha=0.07, linewidth=0)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0.5, len(names) + 0.5)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("rank by mean accuracy (1 is best)")
    axes.grid(axis="x", alpha=0.25)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.legend(fontsize=7, loc="lower left", frameon=False)
    figure.savefig(path, dpi=140)


def write(found: Mapping[str, Mapping[str, Row | None]], out: Path, page: Path | None) -> None:
    """tables.md, results.json and ranks.png; the tables also below a heading of `page`."""
    out.mkdir(parents=True, exist_ok=True)
    files.write_text(out / "tables.md", tables_of_page(found, ""))
    plain = {data: {name: row and asdict(row) for name, row in rows.items()} for data, rows in found.items()}
    files.write_json(out / "results.json", plain)
    means = {data: {name: row.accuracy.mean for name, row in rows.items() if row} for data, rows in found.items()}
    if page is not None:
        before = page.read_text(encoding="utf-8")
        text = before.partition(TABLES)[0] + f"{TABLES}\n\n{tables_of_page(found, before)}"
        files.write_text(page, text)
        tables = {data: body for data, (_, body) in sections(text).items()}
        means = {data: {name: one.mean for name, one in older_rows(body).items()} for data, body in tables.items()}
    places, over = blocks(means, found)
    ranks = ranks_of(over_datasets(places), over)
    if ranks is not None and ranks.tells:
        draw(places, ranks, out / "ranks.png")
        gap = "not known" if ranks.critical_difference is None else f"{ranks.critical_difference:.1f}"
        print(f"{len(ranks.average)} methods ranked over {', '.join(ranks.blocks)}: critical difference {gap}")


def tables_of_page(found: Mapping[str, Mapping[str, Row | None]], page: str) -> str:
    """All tables for the page. Where nothing was run here, a table stays as it is there, and so does a row."""
    there, parts = sections(page), []
    for data, rows in found.items():
        words, body = there.get(data, ("", NOTHING))
        line = f"`{data}`{words}"
        if any(rows.values()):
            older = {name: one for name, one in older_rows(body).items() if name in rows and rows[name] is None}
            line, body = about(data, rows, older), table(rows, older, read_toml(HERE / f"{data}.toml")["model"]["name"])
        parts.append(f"### {DATA[data]}\n\n{line}\n\n{body}\n")
    return "\n".join(parts)


def blocks(
    means: Mapping[str, Mapping[str, float]], found: Mapping[str, Mapping[str, Row | None]]
) -> tuple[dict[str, dict[str, float]], str]:
    """What methods are ranked over: the data sets that most methods have run on, or the seeds of the only one.

    Accuracies by block and method, of the methods that are in every block.
    """
    most = max(map(len, means.values()))
    full = {data: rows for data, rows in means.items() if rows and len(rows) > 2 * most // 3}
    if len(full) == 1:
        (data,) = full
        rows = {name: row for name, row in found[data].items() if row is not None}
        seeds = sorted({seed for row in rows.values() for seed in row.seeds})
        by_block = {f"seed {s}": {n: row.by_seed[s] for n, row in rows.items() if s in row.by_seed} for s in seeds}
    else:
        by_block = {data: dict(rows) for data, rows in full.items()}
    common = set.intersection(*map(set, by_block.values())) if by_block else set()
    over = "seed" if len(full) == 1 else "dataset"
    return {block: {n: v for n, v in values.items() if n in common} for block, values in by_block.items()}, over


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=DATA, metavar="DATA", help=", ".join(DATA))
    parser.add_argument("--only", nargs="+", default=METHODS, metavar="METHOD", help="these methods")
    parser.add_argument("--seeds", type=int, default=5, metavar="K")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at a time")
    parser.add_argument("--out", type=Path, default=Path("runs/results"), metavar="DIR")
    parser.add_argument("--page", type=Path, metavar="FILE", help=f"write the tables into it, below {TABLES!r}")
    parser.add_argument("--read", action="store_true", help="run nothing, show what is there")
    asked = parser.parse_args(arguments)
    for data in asked.data:
        for method in asked.only:
            if asked.read or data in NOT_MADE_FOR.get(method, ()):
                continue
            try:
                carry_out(data, method, asked.out, asked.seeds, asked.jobs)
            except BadInput as error:  # the row stays empty
                print(f"{data}, {method}: {error}", flush=True)
                continue
            row = read(data, method, asked.out, asked.seeds)
            print(f"{data}, {method}: {_interval(row.accuracy) if row else 'no run'}", flush=True)
    found = {data: {name: read(data, name, asked.out, asked.seeds) for name in METHODS} for data in DATA}
    write(found, asked.out, asked.page)
    print(f"tables {asked.out / 'tables.md'}")


if __name__ == "__main__":
    try:
        main()
    except (KeyboardInterrupt, compare.Interrupted):
        sys.exit("stopped; the same command goes on from here")
