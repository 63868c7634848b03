"""The fleet over virtual time, as SVG: how many clients were at work, and, of a small fleet, which did what when."""

from __future__ import annotations

import numpy as np

from potluck.report.drawing.axes import stacked_band, svg, time_axis
from potluck.report.figures.activity import KINDS, TROUBLE, Activity
from potluck.report.markup import Html, tag
from potluck.report.reading.client_facts import Tasks
from potluck.report.reading.run_figures import RunFigures
from potluck.units import nice_ticks, plural, quantity

MOST_LETTERS = 36  # of a device and its client in front of their row
MOST_BARS = 3000  # tasks drawn in rows: the first ones, as many as stay readable
WIDTH, LEFT, RIGHT, ROW, FOOT, HIGH = 960, 270, 12, 15, 44, 200


def areas(busy: Activity, end: float, said: str) -> Html:
    x, parts = time_axis(0.0, end, LEFT, WIDTH - RIGHT, HIGH)
    most = max(1.0, float(np.max(sum(busy.at[kind] for kind in KINDS))))

    def height(n: float) -> float:
        return HIGH - min(1.0, n / most) * (HIGH - 12)

    for n in nice_ticks(0, most, 4):
        y = height(n)
        parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=f"{y:.1f}", y2=f"{y:.1f}", class_="grid"))
        parts.append(tag("text", f"{n:,.3g}", x=LEFT - 8, y=f"{y + 4:.1f}", text_anchor="end"))
    parts.append(tag("text", "busy clients", x=8, y=HIGH / 2, class_="label"))
    below = np.zeros(len(busy.edges) - 1)
    for kind in ("training", "receiving", "sending"):
        above = below + busy.at[kind]
        path = stacked_band(x, height, busy.edges.tolist(), below.tolist(), above.tolist())
        parts.append(tag("path", d=path, class_=f"a-{kind}"))
        below = above
    return svg(parts, f"Number of busy clients. {said}", WIDTH, HIGH + FOOT)


def rows(one: RunFigures, found: Tasks, end: float) -> Html:
    """One row per client, sorted by device; of a long run only its first part."""
    device = {client.name: client.device for client in one.clients}
    shown = sorted(device, key=lambda name: (device[name], name))
    place = {name: i for i, name in enumerate(shown)}
    mine = [i for i, name in enumerate(found.client) if name in place]
    until = end if len(mine) <= MOST_BARS else float(found.sent[mine[MOST_BARS]])
    mine = mine[:MOST_BARS]
    bottom = len(shown) * ROW + 4
    x, parts = time_axis(0.0, until, LEFT, WIDTH - RIGHT, bottom)
    ways: dict[str, list[str]] = {kind: [] for kind in (*KINDS, "note", "trouble")}
    for i in mine:
        y = place[found.client[i]] * ROW + 3
        if found.outcome[i] == "unfit":
            continue
        if found.outcome[i] == "post":
            ways["note"].append(f"M{x(min(until, found.arrived[i])):.1f} {y}v{ROW - 3}")
            continue
        moments = [min(until, part[i]) for part in (found.sent, found.started, found.trained, found.arrived)]
        for kind, a, b in zip(KINDS, moments, moments[1:], strict=False):
            if b > a:
                ways[kind].append(f"M{x(a):.1f} {y}h{x(b) - x(a):.2f}v{ROW - 3}h-{x(b) - x(a):.2f}z")
        if found.outcome[i] in TROUBLE:
            at = x(moments[3])
            ways["trouble"].append(f"M{at - 3:.1f} {y + 2}l6 7m0-7l-6 7")
    for name, i in place.items():
        parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=i * ROW + 9, y2=i * ROW + 9, class_="grid"))
        shown_name = _short(name, MOST_LETTERS // 2)
        kind = tag("tspan", f"{_short(device[name], MOST_LETTERS - len(shown_name))}  ", class_="faint")
        parts.append(tag("text", kind, shown_name, x=LEFT - 8, y=i * ROW + 13, text_anchor="end"))
    parts += [tag("path", d="".join(way), class_=f"a-{kind}") for kind, way in ways.items() if way]
    stretch = "" if until >= end else f" Only the first {quantity(until, 's')} are shown."
    label = f"Activity of each client, a row for each of {plural(len(shown), 'client')}.{stretch}"
    return svg(parts, label, WIDTH, bottom + FOOT)


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
