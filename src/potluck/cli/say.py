"""How figures and tables are put into words for a terminal, a pipe or a log."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from potluck.runs.results import Run
    from potluck.runs.standings import Row, Standings

WIDE = 160  # columns where nobody said how many there are: a pipe or a file


def console(stderr: bool = False) -> Console:
    """Made anew each time, so that it writes to whatever standard output is at the moment."""
    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = WIDE
    return made


def show(what: Any) -> None:
    console().print(what)


def as_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def sheet(*columns: str, title: str | None = None) -> Table:
    """A table; a column that begins with > is set to the right."""
    table = Table(title=title, title_justify="left", caption_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left")
    return table


def duration(seconds: float) -> str:
    """Two units are enough: 0.35 s, 12.3 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    for large, size, small, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {large}" + (f" {rest} {small}" if rest else "")
    raise AssertionError(seconds)


def nbytes(value: float) -> str:
    return _scaled(value, "B")


def joules(value: float) -> str:
    return _scaled(value, "J")


def _scaled(value: float, unit: str) -> str:
    for size, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size * 0.9995:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def some(names: Sequence[str], most: int = 3) -> str:
    """The first few names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def result(run: Run) -> str:
    """A run's end in a few lines."""
    summary = run.summary
    accuracy, sent = summary["accuracy"], summary["bytes"]
    shared = accuracy["global"]
    lines = [
        f"{summary['method']} on {summary['data']}: accuracy {accuracy['mean']:.3f} ± {accuracy['std']:.3f} over "
        f"{count(len(summary['per_client']), 'client')}, worst tenth {accuracy['worst_tenth']:.3f}"
        + ("" if shared is None else f"; one model for all {shared:.3f}"),
        f"{count(summary['rounds'], 'round')} ({summary['ended']}), {duration(summary['virtual_seconds'])} of virtual time, "
        f"{nbytes(sent['up'])} up, {nbytes(sent['down'])} down, {joules(summary['energy_joules'])}; "
        f"{duration(summary['wall_seconds'])} on this machine",
    ]
    troubles = [f"{summary[key]} {word}" for key, word in (("refused_updates", "updates refused"), ("lost_clients", "tasks lost")) if summary[key]]
    if summary["unfit_clients"]:
        unfit = summary["unfit_clients"]
        troubles.append(f"{len(unfit)} of {summary['clients']} clients cannot hold the training ({some(unfit)})")
    if troubles:
        lines.append("; ".join(troubles))
    return "\n".join(lines)


def over_seeds(row: Row) -> str:
    """Several seeds of one method in a line."""
    spread = row.std("accuracy")
    return (
        f"{row.method} over {count(len(row.seeds), 'seed')}: accuracy {row.mean('accuracy'):.3f}"
        + ("" if spread is None else f" ± {spread:.3f}")
        + f", worst tenth {row.mean('worst_tenth'):.3f}"
    )


def ranking(standings: Standings) -> Table:
    """The comparison: a row per method, the best of each column marked."""
    target = "time to target" if standings.target is None else f"time to {standings.target:.0%}"
    unfit = any(any(row.unfit) for row in standings.rows)
    columns = [">accuracy", ">worst tenth", ">virtual time", ">bytes", ">energy", f">{target}"]
    table = sheet("method", *columns, *([">trained"] if unfit else []), "against the best")
    forms = {
        "accuracy": lambda v: f"{v:.3f}",
        "worst_tenth": lambda v: f"{v:.3f}",
        "virtual_seconds": duration,
        "bytes": nbytes,
        "joules": joules,
        "to_target": duration,
    }
    for row in standings.rows:
        cells = []
        for column, form in forms.items():
            mean, std = row.mean(column), row.std(column)
            text = "not reached" if mean is None else form(mean)
            if std is not None and column in ("accuracy", "worst_tenth"):
                text += f" ± {std:.3f}"
            best = mean is not None and mean == standings.best(column)
            cells.append(Text(f"{text} *" if best else f"{text}  ", style="bold green" if best else ""))
        if unfit:
            trained = row.clients - sum(row.unfit) / len(row.unfit)
            cells.append(Text(f"{trained:g} of {row.clients}"))
        table.add_row(Text(row.method), *cells, Text(_against(row)))
    return table


def _against(row: Row) -> str:
    found = row.against_best
    if found is None:
        return "best accuracy"
    text = f"{found.difference:+.3f}".replace("-", "−")
    if found.half_width is not None:
        text += f" ± {found.half_width:.3f}"
    return text + {"larger": "", "noise": ", not larger than the noise", "unsure": ", unsure"}[found.verdict]


def rule(standings: Standings) -> str:
    """What the last column means, for as many seeds as there are."""
    seeds = len(standings.seeds)
    about = (
        "± is the standard deviation over seeds; * marks the best of a column."
        if seeds > 1
        else "One seed: nothing can be said about the noise. * marks the best of a column."
    )
    if seeds >= 3:
        about += (
            " The last column is the paired difference in accuracy to the best method with its 95 % t interval over "
            f"{seeds} seeds; an interval that contains 0 is not larger than the noise."
        )
    elif seeds == 2:
        about += (
            " Two seeds are too few for an interval: a difference whose sign changes between them is not larger than the "
            "noise, one that keeps it is still unsure; --seeds 3 or more would tell."
        )
    return about
