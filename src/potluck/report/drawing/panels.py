"""Figures of one method alone, from its first run that counts: client by class, clusters and the fleet over time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from potluck.report.figures.activity import KINDS, WORDS, activity
from potluck.report.reading import client_facts
from potluck.report.reading.client_facts import Classes, Clusters
from potluck.report.reading.groups import Group
from potluck.report.reading.run_figures import RunFigures
from potluck.units import scale

MOST_ROWS = 60
STEPS = ("#7a1f00", "#c4581c", "#f0b070", "#cfe3f2", "#8fc1e3")  # as on the page: fifths of the share that is right
HUES = ("#0072b2", "#b35900", "#117755", "#88449c", "#7a1f00", "#3f6b8f", "#6b6b00", "#a3305a")
DOING = {"training": "#228833", "receiving": "#4477aa", "sending": "#e8902a"}


def of_method(one: Group) -> Iterator[tuple[str, Figure]]:
    if not one.counted:
        return
    run = one.counted[0]
    classes, clusters = client_facts.classes(run), client_facts.clusters(run)
    if classes is not None:
        yield "client_by_class", _classes(classes, one.label)
    if clusters is not None:
        yield "clusters_over_time", _clusters(clusters, one.label)
    figure = _fleet(run, one.label)
    if figure is not None:
        yield "fleet_over_time", figure


def _panel(title: str, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    plot = figure.add_subplot()
    plot.set_title(title, loc="left", fontsize=11, fontweight="bold", parse_math=False)
    plot.spines[["top", "right"]].set_visible(False)
    return figure, plot


def _classes(found: Classes, label: str) -> Figure:
    """Clients from the worst to the best; tenths of them where they are many."""
    test, right = (np.array(list(part.values()), dtype=float) for part in (found.test, found.right))
    names = np.array(list(found.test))
    order = np.lexsort((names, right.sum(1) / np.maximum(1, test.sum(1))))
    rows = [(str(names[i]), [i]) for i in order]
    if len(rows) > MOST_ROWS:
        parts = np.array_split(order, 10)
        rows = [(f"tenth {k}", part.tolist()) for k, part in enumerate(parts, 1)]
    share = np.array(
        [right[part].sum(0) / np.where(test[part].sum(0) > 0, test[part].sum(0), np.nan) for _, part in rows]
    )
    figure, plot = _panel(f"{label}: right answers by client and class", min(9.0, 1.6 + 0.17 * len(rows)))
    mesh = plot.pcolormesh(
        share, cmap=ListedColormap(list(STEPS)), norm=BoundaryNorm([0, 0.2, 0.4, 0.6, 0.8, 1.001], 5)
    )
    mesh.set_edgecolor("white")
    plot.set_yticks(np.arange(len(rows)) + 0.5, [name for name, _ in rows], fontsize=7, parse_math=False)
    plot.set_xticks(np.arange(len(found.names)) + 0.5, found.names, fontsize=8, parse_math=False)
    if len(found.names) > 8:
        plot.tick_params(axis="x", rotation=60)
    plot.invert_yaxis()
    bar = figure.colorbar(
        mesh, ax=plot, ticks=[0, 0.2, 0.4, 0.6, 0.8, 1.0], format=FuncFormatter(lambda v, _: f"{v:.0%}")
    )
    bar.set_label("right on the client's test samples")
    return figure


def _clusters(found: Clusters, label: str) -> Figure:
    few = len(found.of) <= MOST_ROWS
    figure, plot = _panel(f"{label}: clusters over time", min(9.0, 1.6 + 0.17 * len(found.of)) if few else 4.0)
    divisor, symbol = scale("s", found.moments[-1])
    moments = np.array(found.moments) / divisor
    if few:
        order = sorted(found.of, key=lambda c: (found.of[c][-1] is None, found.of[c][-1] or 0, c))
        grid = np.array([[np.nan if k is None else k % len(HUES) for k in found.of[c]] for c in order], dtype=float)
        step = (moments[-1] - moments[0]) / max(1, len(moments) - 1) or 1.0
        edges = np.append(moments, moments[-1] + step)
        plot.pcolormesh(edges, np.arange(len(order) + 1), grid, cmap=ListedColormap(list(HUES)), vmin=-0.5, vmax=7.5)
        plot.set_yticks(np.arange(len(order)) + 0.5, order, fontsize=7, parse_math=False)
        plot.invert_yaxis()
    else:
        numbers = sorted({k for history in found.of.values() for k in history if k is not None})
        counts = [[sum(history[j] == k for history in found.of.values()) for j in range(len(moments))] for k in numbers]
        plot.stackplot(moments, counts, colors=[HUES[k % len(HUES)] for k in numbers], step="post")
        plot.set_ylabel("clients")
    plot.set_xlabel(f"virtual time, {symbol}")
    return figure


def _fleet(run: RunFigures, label: str) -> Figure | None:
    found = client_facts.tasks(run)
    if not len(found.sent):
        return None
    end = run.virtual or float(found.arrived.max())
    busy = activity(found, max(len(run.clients), len(set(found.client))), end)
    figure, plot = _panel(f"{label}: the fleet over time", 3.4)
    divisor, symbol = scale("s", end)
    below = np.zeros(len(busy.edges) - 1)
    for kind, colour in DOING.items():
        plot.stairs(
            below + busy.at[kind], busy.edges / divisor, baseline=below, fill=True, color=colour, label=WORDS[kind]
        )
        below = below + busy.at[kind]
    assert set(DOING) == set(KINDS)
    plot.set(xlabel=f"virtual time, {symbol}", ylabel="clients at work", xlim=(0, end / divisor), ylim=(0, None))
    plot.legend(frameon=False, fontsize=8, ncols=3, loc="lower right", bbox_to_anchor=(1.0, 1.0))
    return figure
