"""The section on the fleet over virtual time, a tab per method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from potluck.report.drawing.styles import Style
from potluck.report.drawing.timeline import areas, rows
from potluck.report.figures.activity import KINDS, WORDS, activity, in_words
from potluck.report.html.parts import section, swatches, tabs, wide
from potluck.report.markup import Html, tag
from potluck.report.reading.client_facts import Tasks, tasks
from potluck.report.reading.groups import Group
from potluck.report.reading.run_figures import RunFigures

MOST_ROWS = 48  # clients with a row each


def fleet(groups: Sequence[Group], order: Sequence[str], styles: Mapping[str, Style]) -> Html | None:
    """The section, a tab per method, from its first run that counts."""
    by_label = {one.label: one for one in groups}
    pages = []
    for label in order:
        runs = by_label[label].counted or by_label[label].runs
        found = tasks(runs[0])
        if len(found.sent):
            pages.append((label, picture(runs[0], found)))
    if not pages:
        return None
    about = (
        "What the clients did over virtual time; a client that is not drawn is idle. A client receives a task, trains, "
        "and sends its update. A mark at the end means that the task was lost, refused or late. Tasks that were still "
        "under way at the end of the run are not drawn."
    )
    return section("timeline", "The fleet over time", tabs(pages, styles), tag("p", about, class_="about"))


def picture(one: RunFigures, found: Tasks) -> Html:
    known = [client.name for client in one.clients]
    clients = max(len(known), len(set(found.client)))
    end = one.virtual or float(found.arrived.max(initial=0.0))
    busy = activity(found, clients, end)
    said = in_words(busy, found, end)
    key = swatches([*((f"a-{kind}", WORDS[kind]) for kind in KINDS), ("a-trouble", "lost, refused or late")])
    parts = [tag("p", said), key, wide(areas(busy, end, said), "Number of busy clients")]
    if 0 < len(known) <= MOST_ROWS:
        parts.append(wide(rows(one, found, end), "Activity of each client"))
    return tag("div", parts)
