"""The sections of the report as of a moment of virtual time, for the live page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from potluck.errors import Code, unknown
from potluck.metrics import ACCURACY, score, scored_by
from potluck.report.drawing.styles import styles_of
from potluck.report.figures.cards import cards
from potluck.report.figures.comparison import Comparison, compare_groups
from potluck.report.html import sections
from potluck.report.html.cards import card_of
from potluck.report.html.classes import by_class
from potluck.report.html.clusters import over_time
from potluck.report.html.composition import parts_did
from potluck.report.html.timeline import fleet
from potluck.report.html.trade_offs import trade_offs
from potluck.report.markup import Html, tag
from potluck.report.reading.groups import Group, group
from potluck.runs.results import Run
from potluck.units import plural, quantity


def views(runs: Sequence[Run], until: float | None) -> Html:
    """The sections for these runs up to that moment; runs on different data have sections of their own."""
    by_data: dict[str, list[Run]] = {}
    for run in runs:
        name = (
            run.experiment.data.source
            if run.metric == ACCURACY
            else f"{run.experiment.data.source}, {run.metric.words}"
        )
        by_data.setdefault(name, []).append(run)
    if len(by_data) == 1:
        return _views(runs, until)
    parts = [
        tag("details", tag("summary", tag("b", source), f" ({plural(len(some), 'run')})"), _views(some, until))
        for source, some in by_data.items()
    ]
    return tag("div", parts)


def _views(runs: Sequence[Run], until: float | None) -> Html:
    grouped = group(runs, until)
    with scored_by(grouped.metric):
        return _sections(compare_groups(grouped), grouped.groups, until)


def _sections(found: Comparison, groups: Sequence[Group], until: float | None) -> Html:
    styles = styles_of((one.label, one.method) for one in groups)
    order = [row.method for row in found.rows]
    parts = [
        tag("p", found.sentence if until is None else _so_far(found, until), class_="lead"),
        sections.comparison(found, styles, folded=False),
        trade_offs(found, styles, groups),
        sections.how_it_went(groups, order, styles),
        by_class(groups, order, styles),
        over_time(groups, order, styles),
        parts_did(groups, order, styles),
        fleet(groups, order, styles),
        sections.troubles(groups, order, styles),
    ]
    return tag("div", [part for part in parts if part is not None])


def _so_far(found: Comparison, until: float) -> str:
    known = [f"{row.method} {score(row.accuracy.mean)}" for row in found.rows if row.accuracy]
    return f"By {quantity(until, 's')} of virtual time: {', '.join(known) or 'nothing has been evaluated yet'}."


def card(runs: Sequence[Run], folder: Path, client: str, until: float | None) -> Html:
    """The card of one device in one run, with its accuracy in the other runs."""
    source = Run(folder).experiment.data.source
    grouped = group([run for run in runs if run.experiment.data.source == source], until)
    with scored_by(grouped.metric):
        return _card(grouped.groups, folder, client)


def _card(groups: Sequence[Group], folder: Path, client: str) -> Html:
    styles = styles_of((one.label, one.method) for one in groups)
    mine = next((one for one in groups if any(each.folder == folder for each in one.runs)), None)
    if mine is None or not mine.counted:
        return tag("p", "It has not been evaluated yet.")
    found = {one.client: one for one in cards(groups, mine.label)}
    if client not in found:
        raise unknown(Code.UNKNOWN_CLIENT, "client", client, list(found))
    return card_of(found[client], mine.label, styles)
