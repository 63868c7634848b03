"""Pictures of asynchronous runs: activity of the clients, staleness, clusters and traffic over time."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from potluck.report.pictures import Picture, svg_of
from potluck.runs.results import Run

MOST_CLIENTS = 40  # rows of the timeline
MOST_TASKS = 1500  # bars of each kind in it
BINS = 60  # of the traffic
COLOURS = {"receiving": "#4477aa", "training": "#228833", "uploading": "#ee6677"}
COLOURS |= {"broadcast": "#aa3377", "under way": "#bbddbb"}


def pictures(run: Run) -> list[Picture]:
    tasks = run.table("tasks")
    pushes = [
        {"virtual": row["virtual"], **json.loads(row["detail"])} for row in run.table("events") if row["kind"] == "push"
    ]
    clock = f"{run.clock} time"
    found = [_timeline(run, tasks, clock), _traffic(tasks, clock)] if tasks else []
    if pushes:
        found.insert(1, _staleness(pushes, clock))
    clusters = run.table("clusters")
    if clusters:
        found.insert(1, _clusters(run, clusters, clock))
    return found


def _figure(height: float = 3.0) -> tuple[Figure, Any]:
    figure = Figure(figsize=(8.0, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _timeline(run: Run, tasks: list[dict[str, Any]], clock: str) -> Picture:
    """The first part of the run, as far as it stays readable."""
    device = {row["client"]: row["device"] for row in run.table("clients")}
    given = {task["client"] for task in tasks} & device.keys()  # the first clients by name may all be unfit
    shown = sorted(given, key=lambda client: (device[client], client))[:MOST_CLIENTS]
    rows = {client: i for i, client in enumerate(shown)}
    known = sorted((t for t in tasks if t["client"] in rows), key=lambda t: t["sent"])
    worked = known[:MOST_TASKS]
    end = max(t["arrived"] for t in worked) if len(worked) == len(known) else worked[-1]["sent"]
    spans: defaultdict[str, list[Rectangle]] = defaultdict(list)
    for t in worked:
        y = rows[t["client"]] - 0.4
        if t["outcome"] == "post":
            spans["broadcast"].append(Rectangle((t["arrived"], y - 0.05), end / 350, 0.9))
            continue
        moments = (t["sent"], t["started"], t["trained"], t["arrived"])
        for kind, a, b in zip(("receiving", "training", "uploading"), moments, moments[1:], strict=False):
            spans[kind].append(Rectangle((a, y), max(0.0, b - a), 0.8))
    under_way = _under_way([t for t in worked if t["outcome"] != "post"], end)
    for client, since in under_way.items():
        spans["under way"].append(Rectangle((since, rows[client] - 0.4), end - since, 0.8))
    figure, axes = _figure(1.2 + 0.16 * len(shown))
    for kind, boxes in spans.items():
        axes.add_collection(PatchCollection(boxes, facecolor=COLOURS[kind], linewidth=0))
    axes.set(xlim=(0, end), ylim=(len(shown) - 0.4, -0.6), xlabel=f"{clock} (s)")
    axes.set_yticks(range(len(shown)), [f"{client} ({device[client]})" for client in shown], fontsize=6)
    names = {kind: kind for kind in ("receiving", "training", "uploading")}
    names |= {"broadcast": "a broadcast arrives", "under way": "unfinished at the end of the picture"}
    handles = [Patch(color=COLOURS[kind], label=name) for kind, name in names.items() if kind in spans]
    axes.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=5, fontsize=7, frameon=False)
    work = sum(min(t["arrived"], end) - t["sent"] for t in worked if t["outcome"] != "post")
    work += sum(end - since for since in under_way.values())
    busy = work / max(1e-9, end * len(shown))
    caption = (
        f"What {len(shown)} clients did in the first {end:.3g} s of {clock}; white means idle. "
        f"They were busy {100 * min(1.0, busy):.0f} % of that time."
    )
    return Picture("Activity of the clients", caption, svg_of(figure, caption))


def _under_way(tasks: list[dict[str, Any]], end: float) -> dict[str, float]:
    """The start of a task that had not ended by then, which is not recorded.

    If every task so far started when the one before had ended, this one did as well.
    """
    until: dict[str, float] = {}
    waited: set[str] = set()
    for t in sorted(tasks, key=lambda t: float(t["sent"])):
        if t["sent"] > until.get(t["client"], 0.0) + 1e-9:
            waited.add(t["client"])
        until[t["client"]] = t["arrived"]
    return {client: at for client, at in until.items() if client not in waited and at < end}


def _clusters(run: Run, rows: list[dict[str, Any]], clock: str) -> Picture:
    moment = {row["step"]: row["virtual"] for row in run.table("steps")}
    steps = sorted({row["step"] for row in rows})
    numbers = sorted({row["cluster"] for row in rows})
    counts = np.zeros((len(numbers), len(steps)))
    at = {step: i for i, step in enumerate(steps)}
    row_of = {number: i for i, number in enumerate(numbers)}
    for row in rows:
        counts[row_of[row["cluster"]], at[row["step"]]] += 1
    figure, axes = _figure()
    x = [moment[step] for step in steps]
    axes.stackplot(x, counts, labels=[f"cluster {number}" for number in numbers], step="post", alpha=0.85)
    axes.set(xlabel=f"{clock} (s)", ylabel="clients", xlim=(min(x), max(x) if max(x) > min(x) else min(x) + 1.0))
    if len(numbers) <= 12:
        axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    alive = (counts > 0).sum(0)
    caption = (
        f"Clients in each cluster. {len(numbers)} clusters in total, {alive.min()} to {alive.max()} at a time, "
        f"{alive[-1]} at the end."
    )
    return Picture("Clusters over time", caption, svg_of(figure, caption))


def _staleness(pushes: list[dict[str, Any]], clock: str) -> Picture:
    ages = np.array([push["staleness"] for push in pushes])
    figure, axes = _figure()
    axes.scatter([push["virtual"] for push in pushes], ages, s=12, color="#4477aa", alpha=0.5, linewidths=0)
    axes.set(xlabel=f"{clock} (s)", ylabel="versions behind at the merge", ylim=(-0.5, None))
    caption = (
        f"How many versions older than its cluster an update was when it was merged: {ages.mean():.1f} on average, "
        f"{ages.max()} at most, over {len(ages):,} merges."
    )
    return Picture("Staleness", caption, svg_of(figure, caption))


def _traffic(tasks: list[dict[str, Any]], clock: str) -> Picture:
    """Bytes count in the bin in which their transfer ended."""
    end = max(t["arrived"] for t in tasks)
    edges = np.linspace(0.0, end, BINS + 1)
    done = [t for t in tasks if t["outcome"] != "lost"]
    up, _ = np.histogram([t["arrived"] for t in done], edges, weights=[t["bytes_up"] for t in done])
    down, _ = np.histogram([t["started"] for t in tasks], edges, weights=[t["bytes_down"] for t in tasks])
    figure, axes = _figure()
    width = edges[1] - edges[0]
    axes.bar(edges[:-1], up / 1e6, width, align="edge", color=COLOURS["uploading"], label="up")
    axes.bar(edges[:-1], -down / 1e6, width, align="edge", color=COLOURS["receiving"], label="down")
    axes.axhline(0, color="#666666", linewidth=0.6)
    axes.set(xlabel=f"{clock} (s)", ylabel="MB, up and down", xlim=(0, end))
    axes.legend(fontsize=7, frameon=False, ncols=2, loc="upper right")
    caption = (
        f"Traffic in bins of {width:.3g} s of {clock}. Peaks: {up.max() / 1e6:.1f} MB up "
        f"({up.max() / max(1.0, up.mean()):.1f} times the mean), {down.max() / 1e6:.1f} MB down "
        f"({down.max() / max(1.0, down.mean()):.1f} times the mean)."
    )
    return Picture("Traffic", caption, svg_of(figure, caption))
