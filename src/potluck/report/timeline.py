"""The fleet over virtual time: how many were receiving, training and sending, and, of a few, who did what when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from potluck.report.account import Account
from potluck.report.charts import nice_ticks
from potluck.report.detail import Floats, Tasks, tasks
from potluck.report.drawing import drawing, time_axis
from potluck.report.frame import section, swatches, tabs, wide
from potluck.report.groups import Group
from potluck.report.looks import Look
from potluck.report.markup import Html, tag
from potluck.units import percent, plural, quantity

BINS = 240
MOST_ROWS = 48  # clients with a row each
MOST_LETTERS = 36  # of a device and its client in front of their row
MOST_BARS = 3000  # tasks drawn in rows: the first ones, as many as stay readable
WIDTH, LEFT, RIGHT, ROW, FOOT, HIGH = 960, 270, 12, 15, 44, 200
KINDS = ("receiving", "training", "sending")
WORDS = {"receiving": "receiving the task", "training": "training", "sending": "sending the answer"}
TROUBLE = ("refused", "lost", "late")
NO_WORK = ("post", "unfit")  # nobody answers a post, and a device that is too small does not begin


@dataclass(frozen=True)
class Activity:
    """Mean number of clients at each thing, in bins of virtual time."""

    edges: Floats
    at: dict[str, Floats]
    clients: int

    def share(self, kind: str) -> float:
        return float(self.at[kind].mean() / max(1, self.clients))


def activity(found: Tasks, clients: int, end: float, bins: int = BINS) -> Activity:
    """Exact: each bin holds the time spent in it, over its length."""
    edges = np.linspace(0.0, end or 1.0, bins + 1)
    real = np.array([outcome not in NO_WORK for outcome in found.outcome], dtype=bool)
    moments = [part[real] for part in (found.sent, found.started, found.trained, found.arrived)]
    at = {
        kind: np.diff(_spent(a, np.maximum(a, b), edges)) / np.diff(edges)
        for kind, a, b in zip(KINDS, moments, moments[1:], strict=False)
    }
    return Activity(edges, at, clients)


def _spent(start: Floats, stop: Floats, until: Floats) -> Floats:
    """Time spent in all intervals together by each moment: sum of min(t, stop) - min(t, start)."""
    return _passed(start, until) - _passed(stop, until)


def _passed(since: Floats, until: Floats) -> Floats:
    """Sum of max(0, t - s) over s, for every t."""
    ordered = np.sort(since)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    before: NDArray[np.int64] = np.searchsorted(ordered, until)
    result: Floats = before * until - sums[before]
    return result


def fleet(groups: Sequence[Group], order: Sequence[str], looks: Mapping[str, Look]) -> Html | None:
    """The section, a tab per method: of its first run that counts."""
    by_label = {one.label: one for one in groups}
    pages = []
    for label in order:
        runs = by_label[label].counted or by_label[label].accounts
        found = tasks(runs[0])
        if len(found.sent):
            pages.append((label, picture(runs[0], found)))
    if not pages:
        return None
    about = (
        "What the clients were doing on the fleet's clock; whoever is not drawn is waiting. A task is received, "
        "trained on and answered; one that was lost, refused or late has a mark at its end. Tasks that are still on "
        "their way at the end are not drawn."
    )
    return section("timeline", "The fleet over time", tabs(pages, looks), tag("p", about, class_="about"))


def picture(one: Account, found: Tasks) -> Html:
    known = [client.name for client in one.clients]
    clients = max(len(known), len(set(found.client)))
    end = one.virtual or float(found.arrived.max(initial=0.0))
    busy = activity(found, clients, end)
    said = in_words(busy, found, end)
    key = swatches([*((f"a-{kind}", WORDS[kind]) for kind in KINDS), ("a-trouble", "lost, refused or late")])
    parts = [tag("p", said), key, wide(_areas(busy, end, said), "How many clients were at work")]
    if 0 < len(known) <= MOST_ROWS:
        parts.append(wide(_rows(one, found, end), "Who did what when"))
    return tag("div", parts)


def in_words(busy: Activity, found: Tasks, end: float) -> str:
    shares = {kind: busy.share(kind) for kind in KINDS}
    waiting = max(0.0, 1.0 - sum(shares.values()))
    wrong = sum(outcome in TROUBLE for outcome in found.outcome)
    real = sum(outcome not in NO_WORK for outcome in found.outcome)
    small = len({client for client, outcome in zip(found.client, found.outcome, strict=True) if outcome == "unfit"})
    unfit = f"; {plural(small, 'client')} too small to train" if small else ""
    at_work = sum(busy.at[kind] for kind in KINDS)
    return (
        f"{plural(busy.clients, 'client')} over {quantity(end, 's')} of virtual time: "
        f"{percent(shares['training'], 0)} of it training, {percent(shares['receiving'], 0)} receiving, "
        f"{percent(shares['sending'], 0)} sending, {percent(waiting, 0)} waiting; at most "
        f"{float(np.max(at_work)):,.0f} at work together. {plural(real, 'task')}, {wrong:,} of them lost, refused or "
        f"late{unfit}."
    )


def _areas(busy: Activity, end: float, said: str) -> Html:
    x, parts = time_axis(0.0, end, LEFT, WIDTH - RIGHT, HIGH)
    most = max(1.0, float(np.max(sum(busy.at[kind] for kind in KINDS))))
    for n in nice_ticks(0, most, 4):
        y = HIGH - n / most * (HIGH - 12)
        parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=f"{y:.1f}", y2=f"{y:.1f}", class_="grid"))
        parts.append(tag("text", f"{n:,.3g}", x=LEFT - 8, y=f"{y + 4:.1f}", text_anchor="end"))
    parts.append(tag("text", "clients at work", x=8, y=HIGH / 2, class_="label"))
    below = np.zeros(len(busy.edges) - 1)
    for kind in ("training", "receiving", "sending"):
        above = below + busy.at[kind]
        there = [(x(busy.edges[j + s]), above[j]) for j in range(len(above)) for s in (0, 1)]
        back = [(x(busy.edges[j + s]), below[j]) for j in reversed(range(len(above))) for s in (1, 0)]
        way = [(a, HIGH - min(1.0, n / most) * (HIGH - 12)) for a, n in [*there, *back]]
        parts.append(tag("path", d="M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in way) + "Z", class_=f"a-{kind}"))
        below = above
    return drawing(parts, WIDTH, HIGH + FOOT, f"How many clients were at work. {said}")


def _rows(one: Account, found: Tasks, end: float) -> Html:
    """One line per client, alike devices together; the first stretch of a long run."""
    device = {client.name: client.device for client in one.clients}
    shown = sorted(device, key=lambda name: (device[name], name))
    place = {name: i for i, name in enumerate(shown)}
    mine = [i for i, name in enumerate(found.client) if name in place]
    until = end if len(mine) <= MOST_BARS else float(found.sent[mine[MOST_BARS]])
    mine = mine[:MOST_BARS]
    bottom = len(shown) * ROW + 4
    x, parts = time_axis(0.0, until, LEFT, WIDTH - RIGHT, bottom)
    ways: dict[str, list[str]] = {kind: [] for kind in (*KINDS, "told", "trouble")}
    for i in mine:
        y = place[found.client[i]] * ROW + 3
        if found.outcome[i] == "unfit":
            continue
        if found.outcome[i] == "post":
            ways["told"].append(f"M{x(min(until, found.arrived[i])):.1f} {y}v{ROW - 3}")
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
    stretch = "" if until >= end else f" The first {quantity(until, 's')} are shown."
    return drawing(
        parts, WIDTH, bottom + FOOT, f"Who did what when, a line for each of {plural(len(shown), 'client')}.{stretch}"
    )


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
