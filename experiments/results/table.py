"""All methods on seven data sets, tuned with equal budgets: the tables and the rank plot of docs/results.md.

    python experiments/results/table.py                                  # everything
    python experiments/results/table.py --data uci_har --only ditto      # one row
    python experiments/results/table.py --read --page docs/results.md    # run nothing, draw what is there

A row is one comparison with one method, as `potluck compare` makes it: settings chosen on validation rows, then five
seeds. Figures go to rows.json as each row ends, and it comes with the code: what it has is not run again, also on
another machine and with the runs deleted. A row counts as older, and is run again, once its settings are not those of
today: the files beside this one, the defaults of its method, or what is tuned. A row that could not be run stays empty.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from potluck import files, methods
from potluck.cli.progress.line import Quiet
from potluck.errors import BadInput
from potluck.report.figures.comparison import Spread, spread
from potluck.report.figures.pairs import pair
from potluck.report.figures.ranks import Ranks, over_datasets
from potluck.report.figures.ranks import ranks as ranks_of
from potluck.runs import compare
from potluck.runs.build import config_of
from potluck.runs.compare import Plan
from potluck.runs.experiment import read_toml
from potluck.tune import result, tuning
from potluck.tune.chosen import kept
from potluck.tune.request import Request, as_text

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
OLDER = "†"  # marks rows of the page whose settings are not those of today
TABLES = "## All figures"  # the heading of the page below which the tables stand
REQUEST = Request(trials=5, seeds=1)
NOT_MADE_FOR = {"fedcfc": ("mnist", "cifar10")}  # it trains on series
METHODS = [name for name in methods.names() if name != "compose"]  # that one is what its parts make it
NEWCOMERS = {f"new, {rows}": rows for rows in ("0", "1", "5")}  # labelled rows of each class that a newcomer has
SHARES = ["mean", "worst tenth", *NEWCOMERS]
COSTS = ["time", "MB", "J", "J with idle"]
COLUMNS = [*SHARES, *COSTS]


@dataclass(frozen=True)
class Row:
    """One method on one data set. `seeds` has the figures of each seed in the order of COLUMNS.

    A row from before rows.json has `means` only.
    """

    model: str
    asked: str  # digest of everything that was asked for
    code: str  # the commit that ran it
    chosen: dict[str, Any]  # what tuning found, as `potluck.tune.result.with_chosen` reads it
    seeds: dict[int, list[float | None]]
    means: dict[str, float] | None = None  # with `half`, half of the interval of the mean

    def over(self, column: str) -> Spread | None:
        """A figure over the seeds."""
        if self.means is not None:
            value, half = self.means.get(column), self.means.get("half") if column == "mean" else None
            ends = (None, None) if value is None or half is None else (value - half, value + half)
            return None if value is None else Spread(value, None, *ends)
        values = [figures[COLUMNS.index(column)] for figures in self.seeds.values()]
        return spread([value for value in values if value is not None])

    @property
    def mean(self) -> float:
        found = self.over("mean")
        assert found is not None
        return found.mean

    @property
    def by_seed(self) -> dict[int, float]:
        return {seed: figures[0] for seed, figures in self.seeds.items() if figures[0] is not None}


Rows = dict[str, dict[str, Row]]  # by data set and method


def read_rows(path: Path) -> Rows:
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def row(one: dict[str, Any]) -> Row:
        return Row(**{**one, "seeds": {int(seed): figures for seed, figures in one["seeds"].items()}})

    return {data: {name: row(one) for name, one in rows.items()} for data, rows in found.items()}


def write_rows(path: Path, rows: Rows) -> None:
    """One line for each row, in the order of `potluck methods`, so that a change shows what changed."""
    parts = []
    for data, by_method in rows.items():
        lines = [
            f"  {json.dumps(name)}: {json.dumps(asdict(by_method[name]))}" for name in METHODS if name in by_method
        ]
        parts.append(f"{json.dumps(data)}: {{\n" + ",\n".join(lines) + "\n}")
    files.write_text(path, "{\n" + ",\n".join(parts) + "\n}\n")


@cache
def commit() -> str:
    """The commit of this checkout, with + where its source differs from it; empty outside of one."""

    def git(*asked: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", "-C", str(HERE), *asked], capture_output=True, text=True, check=False)

    found = git("rev-parse", "--short=7", "HEAD")
    return (
        ""
        if found.returncode
        else found.stdout.strip() + "+" * git("diff", "--quiet", "HEAD", "--", ":/src").returncode
    )


def plan(data: str, method: str, seeds: int) -> Plan:
    values, _, own = compare.of_file(read_toml(HERE / f"{data}.toml"))
    mine = [setting for setting in own if setting.startswith(f"{method}:")]
    return tuning.split_fixed(compare.plan(values, [method], seeds, mine), REQUEST)


def digest(data: str, method: str) -> str:
    """Of everything that decides a row's figures, but for the code: settings, defaults of the method, tuning."""
    (run,), loaded = plan(data, method, 1).runs, methods.load(method)
    asked = tuning.Tuning(REQUEST, {method: run.experiment}, {method: dict(loaded.space)}).asked()
    text = json.dumps([asked, as_text(loaded.space), repr(config_of(run.experiment, loaded))], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def carry_out(data: str, method: str, out: Path, seeds: int, jobs: int, before: Row | None) -> Row:
    """Tune one method on one data set and run its seeds, as far as `before` and the folder do not have them."""
    planned, asked = plan(data, method, seeds), digest(data, method)
    folder = out / data / method / asked  # runs with other settings have another
    known = before is not None and before.asked == asked
    if before is not None and known:
        chosen, done = {"methods": {method: before.chosen}}, before.seeds
        planned = replace(planned, runs=tuple(run for run in planned.runs if run.seed not in done))
    else:
        found = kept(planned, REQUEST, folder / result.PLACE, Quiet(), jobs)["methods"][method]
        chosen, done = {"methods": {method: {key: found[key] for key in ("chosen", "chosen_candidate")}}}, {}
    runs = compare.carry_out(result.with_chosen(planned, chosen), folder, Quiet(), True, jobs)
    new = {run.experiment.run.seed: figures_of(run.summary) for run in runs}
    return Row(
        str(runs[0].summary["model"]), asked, commit(), chosen["methods"][method], dict(sorted({**done, **new}.items()))
    )


def figures_of(summary: Mapping[str, Any]) -> list[float | None]:
    """The figures of one run, in the order of COLUMNS."""
    energy, news = summary["energy"], summary["newcomers"]["rows"]
    found = [
        summary["accuracy"]["mean"],
        summary["accuracy"]["worst_tenth"],
        *(news[rows]["mean"] for rows in NEWCOMERS.values()),
        summary["virtual_seconds"],
        (summary["bytes"]["up"] + summary["bytes"]["down"]) / 1e6,
        energy["training"] + energy["radio"],
        energy["total"],
    ]
    return [None if value is None else float(f"{value:.6g}") for value in found]


def level(rows: Mapping[str, Row]) -> set[str]:
    """The methods whose difference to the best has a 95 % interval with 0 in it (paired t, not corrected)."""
    best = max(rows, key=lambda name: rows[name].mean)
    if rows[best].means is not None:
        return set()
    gaps = {
        name: pair(name, best, row.by_seed, rows[best].by_seed).t
        for name, row in rows.items()
        if name != best and row.means is None
    }
    return {name for name, t in gaps.items() if t is None or t.low <= 0.0 <= t.high}


def section(data: str, rows: Mapping[str, Row], is_older: Callable[[str, Row], bool]) -> str:
    """One data set as Markdown: the best method first and in bold, those level with it in italics.

    A method with another model than the usual one has its name beside it.
    """
    if not rows:
        return f"### {DATA[data]}\n\n`{data}`\n\nNo row has been run.\n"
    usual = read_toml(HERE / f"{data}.toml")["model"]["name"]
    best, alike = max(row.mean for row in rows.values()), level(rows)
    older = {name for name, row in rows.items() if is_older(name, row)}
    marked = older if len(older) < len(rows) else ()
    lines = [f"| method | {' | '.join(COLUMNS)} |", "|---|" + "---:|" * len(COLUMNS)]
    for name, row in sorted(rows.items(), key=lambda item: -item[1].mean):
        mark = "**" if row.mean == best else "*" if name in alike else ""
        shown = (
            f"`{name}`" + (f" ({row.model})" if row.model != usual else "") + (f" {OLDER}" if name in marked else "")
        )
        shares = [_share(row.over(column)) for column in SHARES[1:]]
        cells = [shown, f"{mark}{_interval(row.over('mean'))}{mark}", *shares, *(_plain(row.over(c)) for c in COSTS)]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [f"| `{method}` |{' |' * len(COLUMNS)}" for method in METHODS if method not in rows]
    return f"### {DATA[data]}\n\n{_words(data, rows, older)}\n\n" + "\n".join(lines) + "\n"


def _words(data: str, rows: Mapping[str, Row], older: set[str]) -> str:
    """What stands above a table: the seeds of its rows, and the code that ran them."""
    new = [row for name, row in rows.items() if name not in older]
    parts = [f"`{data}`"]
    if new:
        counts, codes = sorted({len(row.seeds) for row in new}), sorted({row.code for row in new if row.code})
        parts.append(f"{' or '.join(map(str, counts))} seed{'' if counts == [1] else 's'}")
        parts += [f"commit{'' if len(codes) == 1 else 's'} {', '.join(codes)}"] if codes else []
    words = ", ".join(parts)
    if not older:
        return f"{words}."
    which = f"{OLDER} marks rows" if new else "All rows are"
    return f"{words}. {which} of earlier settings."


def _interval(found: Spread | None) -> str:
    assert found is not None
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
    for i, (data, by_method) in enumerate(places.items()):
        ordered = sorted(names, key=lambda name: -by_method[name])
        ranks = [ordered.index(name) + 1 for name in names]
        axes.scatter(ranks, range(len(names)), 14, f"C{i % 10}", marker="osDv^<>PX*"[i % 10], alpha=0.55, label=data)
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


def blocks(rows: Rows) -> dict[str, dict[str, float]]:
    """Accuracies by data set, of the sets that most methods have run on, and of the methods that are in all of these.

    With one such set its seeds take the place of the sets.
    """
    most = max(map(len, rows.values()), default=0)
    full = {data: by_method for data, by_method in rows.items() if len(by_method) > 2 * most // 3}
    found: dict[str, dict[str, float]] = {
        data: {name: row.mean for name, row in by_method.items()} for data, by_method in full.items()
    }
    if len(full) == 1:
        (by_method,) = full.values()
        seeds = sorted({seed for row in by_method.values() for seed in row.by_seed})
        found = {f"seed {s}": {n: row.by_seed[s] for n, row in by_method.items() if s in row.by_seed} for s in seeds}
    common = set.intersection(*map(set, found.values())) if found else set()
    return {block: {name: value for name, value in values.items() if name in common} for block, values in found.items()}


def show(rows: Rows, page: Path | None, picture: Path | None) -> None:
    """The tables below their heading of `page`, and the picture of ranks."""
    today = cache(digest)
    parts = [section(d, rows.get(d, {}), lambda name, row, d=d: row.asked != today(d, name)) for d in DATA]  # type: ignore[misc]
    text = f"{TABLES}\n\n" + "\n".join(parts)
    if page is None:
        print(text)
    else:
        before = page.read_text(encoding="utf-8").partition(TABLES)[0] if page.exists() else ""
        files.write_text(page, before + text)
    places = blocks(rows)
    over = "seed" if all(block.startswith("seed ") for block in places) else "dataset"
    ranks = ranks_of(over_datasets(places), over)
    if picture is not None and ranks is not None and ranks.tells:
        draw(places, ranks, picture)
        gap = "not known" if ranks.critical_difference is None else f"{ranks.critical_difference:.1f}"
        print(f"{len(ranks.average)} methods ranked over {', '.join(ranks.blocks)}: critical difference {gap}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=DATA, metavar="DATA", help=", ".join(DATA))
    parser.add_argument("--only", nargs="+", default=METHODS, metavar="METHOD", help="these methods")
    parser.add_argument("--seeds", type=int, default=5, metavar="K")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at a time")
    parser.add_argument("--out", type=Path, default=Path("runs/results"), metavar="DIR", help="for the runs themselves")
    parser.add_argument("--rows", type=Path, default=HERE / "rows.json", metavar="FILE", help="all figures")
    parser.add_argument("--page", type=Path, metavar="FILE", help=f"write the tables into it, below {TABLES!r}")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the ranks into it")
    parser.add_argument("--read", action="store_true", help="run nothing, show what is there")
    asked = parser.parse_args(arguments)
    rows = read_rows(asked.rows)
    for data in asked.data:
        for method in asked.only:
            before = rows.get(data, {}).get(method)
            if asked.read or data in NOT_MADE_FOR.get(method, ()):
                continue
            if before is not None and before.asked == digest(data, method) and len(before.seeds) >= asked.seeds:
                continue
            try:
                row = carry_out(data, method, asked.out, asked.seeds, asked.jobs, before)
            except BadInput as error:  # the row stays as it is
                print(f"{data}, {method}: {error}", flush=True)
                continue
            if not row.by_seed:
                print(f"{data}, {method}: no client was scored", flush=True)
                continue
            rows.setdefault(data, {})[method] = row
            write_rows(asked.rows, rows)
            print(f"{data}, {method}: {_interval(row.over('mean'))}", flush=True)
    show(rows, asked.page, asked.picture)


if __name__ == "__main__":
    try:
        main()
    except (KeyboardInterrupt, compare.Interrupted):
        sys.exit("stopped; the same command goes on from here")
