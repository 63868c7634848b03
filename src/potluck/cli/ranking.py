"""The table of a comparison on a terminal: a row per method, its accuracy, its costs, its distance to the best."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from potluck.cli import text
from potluck.metrics import distance, metric, words
from potluck.runs.beside import shown
from potluck.units import NOTHING, plural, quantity

if TYPE_CHECKING:
    from potluck.report import Comparison, Row, Spread
    from potluck.runs.compare import Reached

ONE_TABLE = 140  # columns of a terminal from which accuracy and costs fit side by side


@dataclass(frozen=True)
class Column:
    """One column of the table: the figure that ranks methods, and how it is written."""

    name: str
    figure: Callable[[Row], float | None]
    form: Callable[[Row], str]
    high: bool = False  # whether more is better


def ranking(comparison: Comparison, reached: Reached, width: int) -> list[Table]:
    """A row per method, in one table or, on a narrow terminal, in two; a star marks the best of each column.

    A method whose clients have models of their own has a second row: "fedavg, own".
    """
    success = [
        Column(words(), lambda r: _mean(r.accuracy), lambda r: _spread(r.accuracy), high=True),
        Column("worst tenth", lambda r: _mean(r.worst_tenth), lambda r: _spread(r.worst_tenth), high=True),
    ]
    success += [  # figures that explain the accuracy: none of them is the best
        Column(name, lambda r: None, partial(_beside, name))
        for name in dict.fromkeys(name for row in comparison.rows for name in row.beside)
    ]
    equal = []
    if comparison.time is not None:
        name = f"at {comparison.time.words}"
        equal.append(Column(name, lambda r: _mean(r.at_time), lambda r: _spread(r.at_time), high=True))
        equal.append(Column("on the way", lambda r: _mean(r.area), lambda r: _spread(r.area), high=True))
    if comparison.passes is not None:
        name = f"at {comparison.passes.words}"
        equal.append(Column(name, lambda r: _mean(r.at_passes), lambda r: _spread(r.at_passes), high=True))
    costs = [
        Column("virtual time", lambda r: _mean(r.virtual_seconds), lambda r: _amount(r.virtual_seconds, "s")),
        Column("bytes", _bytes, lambda r: quantity(_bytes(r), "B")),
        Column("energy (idle)", lambda r: _mean(r.all_joules), _energy),
    ]
    if reached.target is not None:
        name = f"time to {_target(reached.target)}"
        variants = {row.method for row in comparison.own}  # their curves are not timed
        costs.append(
            Column(
                name,
                lambda r: None if r.method in variants else reached.mean(r.name),
                lambda r: NOTHING if r.method in variants else _when(reached.mean(r.name)),
            )
        )
    rows = sorted(
        comparison.lines, key=lambda r: (not r.finished, -(-math.inf if r.accuracy is None else r.accuracy.mean))
    )
    equal = equal if len(comparison.rows) > 1 else []
    if width >= ONE_TABLE:
        if any(line.untrained for line in comparison.infers_with):
            success.append(
                Column(
                    "of those that trained", lambda r: _mean(r.able_accuracy), lambda r: _spread(r.able_accuracy), True
                )
            )
        tables = [_table(rows, [*success, *costs], verdicts=True)]
        return [*tables, *([_table(comparison.rows, equal, verdicts=False)] if equal else [])]
    parts = [part for part in (equal, costs) if part]
    return [
        _table(rows, success, verdicts=True),
        *(_table(comparison.rows, part, verdicts=False) for part in parts),
    ]


def newcomers(comparison: Comparison) -> Table | None:
    """What each method gives clients that took no part in training; None without such clients."""
    if not comparison.newcomers:
        return None
    counts = sorted({count for line in comparison.newcomers for count in line.accuracy})
    heads = [f">{plural(count, 'row')} of each class" if count else ">no labelled rows" for count in counts]
    table = text.sheet("newcomers", *heads)
    for line in comparison.newcomers:
        means = [line.accuracy.get(count) for count in counts]
        table.add_row(Text(line.method), *(NOTHING if mean is None else f"{mean:.3f}" for mean in means))
    return table


def over_seeds(row: Row) -> str:
    """Several seeds of one method in one line; ± is the standard deviation over seeds."""
    accuracy, tenth = _spread(row.accuracy), _spread(row.worst_tenth)
    return f"{row.method} over {plural(len(row.seeds), 'seed')}: {words()} {accuracy}, worst tenth {tenth}"


def rule(seeds: int) -> str:
    """Explain the marks and the last column of the table, for this number of seeds."""
    if metric().rule:
        return f"{metric().rule} {_marks(seeds)}"
    return _marks(seeds)


def _marks(seeds: int) -> str:
    if seeds == 1:
        return "* marks the best of a column. One seed says nothing about noise; use --seeds 3 or more."
    marks = (
        "± is the standard deviation over seeds, * marks the best of a column. The last column is the mean difference "
        f"in {words()} to the best method, seed by seed"
    )
    if seeds == 2:
        return f"{marks}. Two seeds are too few to tell a difference from noise; use --seeds 3 or more."
    return f"{marks}, with its 95 % paired t interval. If the interval contains 0, the difference may be noise."


def _table(rows: Sequence[Row], columns: Sequence[Column], verdicts: bool) -> Table:
    table = text.sheet(
        "method", *(f">{column.name}" for column in columns), *(["against the best"] if verdicts else [])
    )
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


def _target(plain: float) -> str:
    return f"{100 * plain:g} %" if metric().share else f"{words()} {plain:g}"


def _mean(spread: Spread | None) -> float | None:
    return None if spread is None else spread.mean


def _amount(spread: Spread | None, kind: str) -> str:
    return quantity(_mean(spread), kind)


def _energy(row: Row) -> str:
    """All that the devices drew, and the share that was idle; only the work where waiting is not known."""
    if row.all_joules is None:
        return NOTHING if row.joules is None else f"{_amount(row.joules, 'J')} for work"
    share = _mean(row.idle_share)
    return f"{_amount(row.all_joules, 'J')}{'' if share is None else f' ({100 * share:.0f} %)'}"


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return NOTHING
    now = metric()
    mean = now.plain(now.merit(spread.mean))
    return mean if spread.std is None else f"{mean} ± {now.spread(spread.std)}"


def _beside(name: str, row: Row) -> str:
    found = row.beside.get(name)
    if found is None:
        return NOTHING
    return shown(name, found.mean) if found.std is None else f"{shown(name, found.mean)} ± {shown(name, found.std)}"


def _bytes(row: Row) -> float | None:
    up, down = _mean(row.bytes_up), _mean(row.bytes_down)
    return None if up is None or down is None else up + down


def _against(row: Row) -> str:
    gap = row.difference
    if gap is None:
        return f"best {words()}" if row.best else ""
    if gap.mean is None:
        return gap.verdict
    shown = f"{gap.mean:+.3f}".replace("-", "−") if metric().share else distance(gap.mean)
    if gap.low is not None and gap.high is not None:
        shown += f" ± {metric().spread((gap.high - gap.low) / 2)}"
    return f"{shown}, {gap.verdict}"
