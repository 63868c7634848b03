"""How figures and tables are put into words for a terminal, a pipe or a log."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from potluck.units import plural, quantity

if TYPE_CHECKING:
    from potluck.report import Comparison, Row, Spread
    from potluck.runs.compare import Reached
    from potluck.runs.results import Run

ONE_TABLE = 140  # columns from which a comparison fits side by side
WIDE = 160  # columns where nobody said how many there are: a pipe or a file


def console(stderr: bool = False) -> Console:
    """Made anew each time, so that it writes to whatever standard output is at the moment."""
    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = WIDE
    return made


def show(what: Any) -> None:
    console().print(what)


def line(text: str) -> None:
    """One line, however long: a path that is broken in two cannot be copied."""
    console().print(Text(text), soft_wrap=True)


def doing(text: str) -> None:
    """What long work is at, on standard error, where somebody sits in front of it."""
    there = console(stderr=True)
    if there.is_terminal:
        there.print(Text(text, style="dim"), soft_wrap=True)


def itself() -> str:
    """This program as it was called, so that a command that is shown can be pasted where no environment is active."""
    called = Path(sys.argv[0])
    elsewhere = called.name == "potluck" and called.exists() and shutil.which("potluck") != str(called)
    return shlex.quote(str(called)) if elsewhere else "potluck"


def as_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def sheet(*columns: str) -> Table:
    """A table; a column that begins with > is set to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left")
    return table


def some(names: Sequence[str], most: int = 3) -> str:
    """The first few names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def result(run: Run) -> str:
    """A run's end in a few lines."""
    s = run.summary
    accuracy, unfit = s["accuracy"], s["unfit_clients"]
    shared = "" if accuracy["global"] is None else f"; one model for all {accuracy['global']:.3f}"
    lines = [
        f"{s['method']} on {s['data']}: accuracy {accuracy['mean']:.3f} ± {accuracy['std']:.3f} "
        f"over {plural(len(s['per_client']), 'client')}, worst tenth {accuracy['worst_tenth']:.3f}{shared}",
        f"{s['ended']} in {quantity(s['virtual_seconds'], 's')} of virtual time, "
        f"{quantity(s['wall_seconds'], 's')} on this machine; {quantity(s['bytes']['up'], 'B')} up, "
        f"{quantity(s['bytes']['down'], 'B')} down, {quantity(s['energy_joules'], 'J')}",
    ]
    troubles = [f"{plural(s['refused_updates'], 'update')} refused"] if s["refused_updates"] else []
    troubles += [f"{plural(s['lost_clients'], 'task')} lost"] if s["lost_clients"] else []
    if unfit:
        troubles.append(f"{len(unfit)} of {plural(s['clients'], 'client')} cannot hold the training ({some(unfit)})")
    return "\n".join([*lines, "; ".join(troubles)] if troubles else lines)


def over_seeds(row: Row) -> str:
    """Several seeds of one method in a line; ± is the standard deviation over them."""
    accuracy, tenth = _spread(row.accuracy), _spread(row.worst_tenth)
    return f"{row.method} over {plural(len(row.seeds), 'seed')}: accuracy {accuracy}, worst tenth {tenth}"


@dataclass(frozen=True)
class Column:
    """A figure of a method as the table shows it."""

    name: str
    figure: Callable[[Row], float | None]
    form: Callable[[Row], str]
    high: bool = False  # whether more is better


def ranking(comparison: Comparison, reached: Reached, width: int) -> list[Table]:
    """A row per method, in one table, or in two where it is narrow; the best of each column has a star."""
    success = [
        Column("accuracy", lambda r: _mean(r.accuracy), lambda r: _spread(r.accuracy), high=True),
        Column("worst tenth", lambda r: _mean(r.worst_tenth), lambda r: _spread(r.worst_tenth), high=True),
    ]
    costs = [
        Column("virtual time", lambda r: _mean(r.virtual_seconds), lambda r: _amount(r.virtual_seconds, "s")),
        Column("bytes", _bytes, lambda r: quantity(_bytes(r), "B")),
        Column("energy", lambda r: _mean(r.joules), lambda r: _amount(r.joules, "J")),
    ]
    if reached.target is not None:
        name = f"time to {100 * reached.target:g} %"
        costs.append(Column(name, lambda r: reached.mean(r.name), lambda r: _when(reached.mean(r.name))))
    if width >= ONE_TABLE:
        return [_table(comparison.rows, [*success, *costs], verdicts=True)]
    return [_table(comparison.rows, success, verdicts=True), _table(comparison.rows, costs, verdicts=False)]


def _table(rows: Sequence[Row], columns: Sequence[Column], verdicts: bool) -> Table:
    table = sheet("method", *(f">{column.name}" for column in columns), *(["against the best"] if verdicts else []))
    best = [_best(rows, column) for column in columns]
    for row in rows:
        cells = []
        for column, top in zip(columns, best, strict=True):
            marked = len(rows) > 1 and top is not None and column.figure(row) == top
            cells.append(Text(f"{column.form(row)} {'*' if marked else ' '}", style="bold green" if marked else ""))
        table.add_row(Text(row.method), *cells, *([Text(_against(row))] if verdicts else []))
    return table


def _best(rows: Sequence[Row], column: Column) -> float | None:
    found = [value for row in rows if (value := column.figure(row)) is not None]
    return (max if column.high else min)(found) if found else None


def _when(seconds: float | None) -> str:
    return "not reached" if seconds is None else quantity(seconds, "s")


def _mean(spread: Spread | None) -> float | None:
    return None if spread is None else spread.mean


def _amount(spread: Spread | None, kind: str) -> str:
    return quantity(_mean(spread), kind)


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return "–"
    return f"{spread.mean:.3f}" if spread.std is None else f"{spread.mean:.3f} ± {spread.std:.3f}"


def _bytes(row: Row) -> float | None:
    up, down = _mean(row.bytes_up), _mean(row.bytes_down)
    return None if up is None or down is None else up + down


def _against(row: Row) -> str:
    gap = row.difference
    if gap is None:
        return "best accuracy" if row.best else ""
    if gap.mean is None:
        return gap.verdict
    text = f"{gap.mean:+.3f}".replace("-", "−")
    if gap.low is not None and gap.high is not None:
        text += f" ± {(gap.high - gap.low) / 2:.3f}"
    return f"{text}, {gap.verdict}"


def rule(seeds: int) -> str:
    """What the table's marks and its last column mean, for as many seeds as there are."""
    if seeds == 1:
        return "* is the best of a column. One seed says nothing about the noise: --seeds 3 or more does."
    text = "± is the standard deviation over seeds, * the best of a column. The last column is the mean difference in "
    text += "accuracy to the best method, seed by seed"
    if seeds == 2:
        return f"{text}; two seeds are too few to tell it from noise, --seeds 3 or more would."
    return f"{text}, with its 95 % paired t interval: one that contains 0 is not larger than the noise."
