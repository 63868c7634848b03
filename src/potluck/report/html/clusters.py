"""The section on clusters over time, a tab per method that groups its clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from potluck.report.drawing.clusters import sizes, strips
from potluck.report.drawing.styles import Style
from potluck.report.html.parts import page_per_method, section, tabs, wide
from potluck.report.markup import Html, tag
from potluck.report.reading.client_facts import Clusters, clusters
from potluck.report.reading.groups import Group
from potluck.report.reading.run_figures import RunFigures
from potluck.units import plural

MOST_ROWS = 60


def over_time(groups: Sequence[Group], order: Sequence[str], styles: Mapping[str, Style]) -> Html | None:
    """The section, a tab per method that groups its clients, from its first run that counts."""

    def draw(run: RunFigures) -> Html | None:
        found = clusters(run)
        return None if found is None else picture(found)

    pages = page_per_method(groups, order, draw)
    return section("clusters", "Clusters over time", tabs(pages, styles)) if pages else None


def picture(found: Clusters) -> Html:
    said = in_words(found)
    drawn = strips(found, said) if len(found.of) <= MOST_ROWS else sizes(found, said)
    return tag("div", tag("p", said), wide(drawn, "Clusters over time"))


def in_words(found: Clusters) -> str:
    last = Counter(history[-1] for history in found.of.values() if history[-1] is not None)
    moved = sum(len({k for k in history if k is not None}) > 1 for history in found.of.values())
    sizes = ", ".join(str(n) for _, n in last.most_common(8)) + (" …" if len(last) > 8 else "")
    return (
        f"{plural(len(last), 'cluster')} at the end ({sizes} clients); "
        f"{plural(moved, 'client')} of {len(found.of):,} changed cluster during the run."
    )
