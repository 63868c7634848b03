"""A comparison as a small table for a notebook, without the report's style and script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from potluck.metrics import distance, score, words
from potluck.report.markup import Html, named, tag
from potluck.units import NOTHING, quantity

if TYPE_CHECKING:
    from potluck.report.figures.comparison import Comparison, Row, Spread

_STYLE = "font-family:system-ui,sans-serif;max-width:60em"
_LEFT, _RIGHT = "text-align:left", "text-align:right;white-space:nowrap"


def _share(one: Spread | None) -> str:
    if one is None:
        return NOTHING
    return score(one.mean) + ("" if one.std is None else f" ± {distance(one.std, signed=False)}")


def _amount(one: Spread | None, kind: str) -> str:
    return NOTHING if one is None else quantity(one.mean, kind)


def _energy(row: Row) -> str:
    share = "" if row.idle_share is None else f" ({100 * row.idle_share.mean:.0f} %)"
    return _amount(row.joules, "J") if row.all_joules is None else f"{_amount(row.all_joules, 'J')}{share}"


def _behind(row: Row) -> str:
    gap = row.difference
    if gap is None or gap.mean is None:
        return "best" if row.best else NOTHING
    inside = "" if gap.low is None or gap.high is None else f" ({distance(gap.low)} to {distance(gap.high)})"
    return f"{distance(gap.mean)}{inside}"


def _row(row: Row) -> Html:
    total = None if row.bytes_up is None or row.bytes_down is None else row.bytes_up.mean + row.bytes_down.mean
    cells = [
        _share(row.accuracy),
        _behind(row),
        _share(row.worst_tenth),
        _amount(row.virtual_seconds, "s"),
        NOTHING if total is None else quantity(total, "B"),
        _energy(row),
    ]
    name = tag("b", named(row.method)) if row.best else named(row.method)
    return tag("tr", tag("th", name, style=_LEFT), [tag("td", cell, style=_RIGHT) for cell in cells])


def comparison_html(found: Comparison) -> str:
    """The result in words, the table, and what it means."""
    head = [words(), "behind the best, 95 %", "worst tenth", "virtual time", "bytes", "energy (idle)"]
    table = tag(
        "table",
        tag("thead", tag("tr", tag("th", "method", style=_LEFT), [tag("th", one, style=_RIGHT) for one in head])),
        tag("tbody", [_row(row) for row in found.rows]),
    )
    seeds = max((len(row.seeds) for row in found.rows), default=0)
    over = "± is the standard deviation over seeds." if seeds > 1 else "One seed: nothing is known about the noise."
    return tag("div", tag("p", found.sentence), table, tag("p", tag("small", over)), style=_STYLE)
