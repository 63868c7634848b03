"""The table of newcomers: what each method gives clients that took no part in training."""

from __future__ import annotations

from potluck.report.figures.comparison import Comparison
from potluck.report.html.parts import section
from potluck.report.html.tables import Styles, cell, method_cell, table
from potluck.report.markup import Html, tag
from potluck.units import percent, plural


def newcomers(found: Comparison, styles: Styles) -> Html | None:
    """None without newcomers."""
    if not found.newcomers:
        return None
    counts = sorted({count for line in found.newcomers for count in line.accuracy})
    trained = [count for count in counts if count and any(line.own.get(count) is not None for line in found.newcomers)]
    known = {row.method: row.accuracy.mean for row in found.rows if row.accuracy}
    body = [
        [
            method_cell(line.method, styles),
            cell(percent(known.get(line.method))),
            *(cell(percent(line.accuracy.get(count))) for count in counts),
            *(cell(percent(line.own.get(count))) for count in trained),
        ]
        for line in found.newcomers
    ]
    head = ["Method", "Clients of the run", *(_rows(count) for count in counts)]
    head += [f"Own, {_rows(count).lower()}" for count in trained]
    most, rounds = max(line.clients for line in found.newcomers), found.newcomers[0].rounds
    about = (
        f"Mean accuracy of {plural(most, 'client')} that took no part in training, on their own test samples. Rows are "
        "labelled training samples of each class. Without any, a newcomer uses what the server can give it. With some, "
        f"it did the tasks of the method for {plural(rounds, 'round')}; the server stayed as it was. Own is the model "
        "as this training left it."
    )
    caption = "Newcomers: mean accuracy"
    return section("newcomers", "Newcomers", table(caption, head, body), tag("p", about, class_="about"))


def _rows(count: int) -> str:
    return "No rows" if not count else plural(count, "row")
