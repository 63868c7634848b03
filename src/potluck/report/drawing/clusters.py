"""Which client was in which cluster when, as SVG: a strip per client, or the sizes of the clusters in a large fleet."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from potluck.report.drawing.axes import stacked_band, svg, time_axis
from potluck.report.markup import Html, tag
from potluck.report.reading.client_facts import Clusters
from potluck.units import quantity

COLOURS = 8  # in the style sheet; the number in a strip tells clusters of one colour apart
WIDTH, LEFT, RIGHT, ROW, FOOT = 960, 130, 12, 15, 44
HIGH = 260  # of the stacked form


def strips(found: Clusters, said: str) -> Html:
    """A strip per client, sorted by the cluster at the end."""
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
            size: dict[str, str | int] = {
                "x": f"{a:.1f}",
                "y": y,
                "width": f"{max(0.6, b - a - 0.6):.1f}",
                "height": ROW - 2,
            }
            parts.append(tag("rect", hint, class_=f"k{cluster % COLOURS}", **size))
            if b - a > 22:
                parts.append(tag("text", str(cluster), x=f"{a + 5:.1f}", y=y + ROW - 4.5, class_="on"))
    return svg(parts, f"Clusters over time. {said}", WIDTH, len(order) * ROW + 4 + FOOT)


def sizes(found: Clusters, said: str) -> Html:
    """The number of clients of each cluster, as stacked areas."""
    numbers = sorted({k for history in found.of.values() for k in history if k is not None})
    counts = [Counter(history[j] for history in found.of.values()) for j in range(len(found.moments))]
    ends = _ends(found)
    x, axis = time_axis(ends[0], ends[-1], LEFT, WIDTH - RIGHT, HIGH)
    parts = [*axis, tag("text", f"{len(found.of):,} clients", x=LEFT - 8, y=14, text_anchor="end")]

    def y(n: float) -> float:
        return HIGH - n / len(found.of) * (HIGH - 6)

    below = [0.0] * len(counts)
    for cluster in numbers:
        above = [low + counts[j][cluster] for j, low in enumerate(below)]
        hint = tag("title", f"cluster {cluster}: {counts[-1][cluster]} clients at the end")
        parts.append(tag("path", hint, d=stacked_band(x, y, ends, below, above), class_=f"k{cluster % COLOURS}"))
        below = above
    return svg(parts, f"Clusters over time. {said}", WIDTH, HIGH + FOOT)


def _ends(found: Clusters) -> list[float]:
    """The edges of the stretches between moments; the last stretch is as long as the mean of the others."""
    moments = found.moments
    step = (moments[-1] - moments[0]) / max(1, len(moments) - 1) or moments[-1] or 1.0
    return [*moments, moments[-1] + step]


def _short(client: str) -> str:
    return client if len(client) <= 18 else f"{client[:17]}…"
