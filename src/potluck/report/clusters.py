"""Who was in which cluster when: a strip per client, or how large each cluster was where clients are many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby

from potluck.report.detail import Clusters, clusters
from potluck.report.drawing import Place, drawing, time_axis
from potluck.report.frame import section, tabs, wide
from potluck.report.groups import Group
from potluck.report.looks import Look
from potluck.report.markup import Html, tag
from potluck.units import plural, quantity

MOST_ROWS = 60
COLOURS = 8  # in the style sheet; the number in a strip tells clusters of one colour apart
WIDTH, LEFT, RIGHT, ROW, FOOT = 960, 130, 12, 15, 44
HIGH = 260  # of the stacked form


def over_time(groups: Sequence[Group], order: Sequence[str], looks: Mapping[str, Look]) -> Html | None:
    """The section, a tab per method that groups its clients: of its first run that counts."""
    by_label = {one.label: one for one in groups}
    pages = []
    for label in order:
        runs = by_label[label].counted
        found = clusters(runs[0]) if runs else None
        if found is not None:
            pages.append((label, picture(found)))
    return section("clusters", "Clusters over time", tabs(pages, looks)) if pages else None


def picture(found: Clusters) -> Html:
    said = in_words(found)
    drawn = _strips(found, said) if len(found.of) <= MOST_ROWS else _sizes(found, said)
    return tag("div", tag("p", said), wide(drawn, "Clusters over time"))


def in_words(found: Clusters) -> str:
    last = Counter(history[-1] for history in found.of.values() if history[-1] is not None)
    moved = sum(len({k for k in history if k is not None}) > 1 for history in found.of.values())
    sizes = ", ".join(str(n) for _, n in last.most_common(8)) + (" …" if len(last) > 8 else "")
    return (
        f"In the end there are {plural(len(last), 'cluster')} ({sizes} clients); "
        f"{plural(moved, 'client')} of {len(found.of):,} changed cluster on the way."
    )


def _ends(found: Clusters) -> list[float]:
    """Where each moment's stretch begins, and where the last one ends: a little beyond its own moment."""
    moments = found.moments
    step = (moments[-1] - moments[0]) / max(1, len(moments) - 1) or moments[-1] or 1.0
    return [*moments, moments[-1] + step]


def _strips(found: Clusters, said: str) -> Html:
    """Clients that ended together lie together."""
    order = sorted(found.of, key=lambda c: (found.of[c][-1] is None, found.of[c][-1] or 0, c))
    ends = _ends(found)
    x, axis = time_axis(ends[0], ends[-1], LEFT, WIDTH - RIGHT, len(order) * ROW + 4)
    parts = list(axis)
    for i, client in enumerate(order):
        y = i * ROW + 2
        parts.append(tag("text", _short(client), x=LEFT - 8, y=y + ROW - 4, text_anchor="end"))
        for cluster, places in groupby(range(len(found.moments)), key=lambda j: found.of[client][j]):
            stretch = list(places)
            if cluster is None:
                continue
            a, b = x(ends[stretch[0]]), x(ends[stretch[-1] + 1])
            hint = tag("title", f"{client}: cluster {cluster} from {quantity(ends[stretch[0]], 's')}")
            box = tag("rect", hint, x=f"{a:.1f}", y=y, width=f"{max(0.6, b - a - 0.6):.1f}", height=ROW - 2,
                      class_=f"k{cluster % COLOURS}")  # fmt: skip
            parts.append(box)
            if b - a > 22:
                parts.append(tag("text", str(cluster), x=f"{a + 5:.1f}", y=y + ROW - 4.5, class_="on"))
    return drawing(parts, WIDTH, len(order) * ROW + 4 + FOOT, f"Clusters over time. {said}")


def _sizes(found: Clusters, said: str) -> Html:
    numbers = sorted({k for history in found.of.values() for k in history if k is not None})
    counts = [Counter(history[j] for history in found.of.values()) for j in range(len(found.moments))]
    ends = _ends(found)
    x, axis = time_axis(ends[0], ends[-1], LEFT, WIDTH - RIGHT, HIGH)
    parts = [*axis, tag("text", f"{len(found.of):,} clients", x=LEFT - 8, y=14, text_anchor="end")]
    below = [0.0] * len(counts)
    for cluster in numbers:
        above = [low + counts[j][cluster] for j, low in enumerate(below)]
        parts.append(
            tag("path", tag("title", f"cluster {cluster}: {counts[-1][cluster]} clients in the end"),
                d=_band(x, ends, below, above, len(found.of)), class_=f"k{cluster % COLOURS}")
        )  # fmt: skip
        below = above
    return drawing(parts, WIDTH, HIGH + FOOT, f"Clusters over time. {said}")


def _band(x: Place, ends: Sequence[float], below: Sequence[float], above: Sequence[float], most: int) -> str:
    def y(n: float) -> float:
        return HIGH - n / most * (HIGH - 6)

    there = [(x(ends[j + side]), y(above[j])) for j in range(len(above)) for side in (0, 1)]
    back = [(x(ends[j + side]), y(below[j])) for j in reversed(range(len(below))) for side in (1, 0)]
    return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in [*there, *back]) + "Z"


def _short(client: str) -> str:
    return client if len(client) <= 18 else f"{client[:17]}…"
