"""The charts of the report for papers and slides, as PDF and PNG files, with the same names, units and styles."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from potluck.errors import BadInput, Code, unknown
from potluck.files import write_bytes
from potluck.metrics import metric, score, scored_by, within, words
from potluck.report.drawing.axes import axis_ticks, cost_axis, score_range
from potluck.report.drawing.charts import MOST_DOTS
from potluck.report.drawing.panels import of_method
from potluck.report.drawing.ranks import rank_plot
from potluck.report.drawing.rows import client_gains, differences
from potluck.report.drawing.sketch import Sketch
from potluck.report.drawing.sketch_png import MARKERS, as_figure
from potluck.report.drawing.styles import Style, styles_of
from potluck.report.drawing.trade_offs import exchange_title
from potluck.report.figures.budgets import line_of
from potluck.report.figures.comparison import Comparison, compare_groups
from potluck.report.figures.curves import AXES, Axis, above_zero, curves, ranked
from potluck.report.figures.exchange import Exchange, exchange
from potluck.report.figures.pareto import COSTS, Cost, Standing, front, standings
from potluck.report.figures.ranks import Ranks
from potluck.report.reading.groups import Group, Grouped, group
from potluck.runs.results import Run
from potluck.units import nice_ticks

FORMATS = ("pdf", "png", "svg")
_WITHOUT: dict[str, dict[str, Any]] = {  # what a file would say of the moment and of the program that drew it
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    ".svg": {"Date": None, "Creator": None},
}
SORTED = " of every client, sorted"  # the end of a title
_FILES = {"round": "rounds", "virtual": "time", "bytes": "bytes", "joules": "joules"}


def figures(
    runs: Sequence[Run], folder: Path, formats: Sequence[str] = ("png",), each_method: bool = False
) -> list[Path]:
    """accuracy_by_{rounds,time,bytes,joules}, accuracy_of_clients; of several methods trade_off_{time,joules,bytes}.

    Several methods that reached one accuracy have time_against_bytes, those with common seeds differences and
    client_gains; three or more also have average_ranks.
    `each_method` adds client_by_class, clusters_over_time and fleet_over_time of every method that has them, as
    name-method. There are none where nothing was evaluated.
    """
    unfit = [name for name in formats if name not in FORMATS]
    if unfit:
        raise unknown(Code.FLAG_VALUE, "figures: format", unfit[0], FORMATS)
    grouped = group(runs)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            Code.OUTPUT_PLACE, f"figures: {str(folder)!r} cannot be created ({error.strerror or error})."
        ) from None
    with scored_by(grouped.metric):
        found = [(name, figure) for name, figure in _all(grouped, each_method) if figure is not None]
    return [_save(figure, folder / f"{name}.{kind}") for name, figure in found for kind in formats]


def _all(grouped: Grouped, each_method: bool) -> Iterator[tuple[str, Figure | None]]:
    groups = grouped.groups
    styles = styles_of((one.label, one.method) for one in groups)
    for axis in AXES:
        yield f"{metric().name}_by_{_FILES[axis.name]}", _curves(groups, axis, styles)
    yield f"{metric().name}_of_clients", _clients(groups, styles)
    found = compare_groups(grouped)
    known = standings(found)
    if len(known) > 1:
        for i, cost in enumerate(COSTS):
            yield f"trade_off_{cost.name}", _trade_off(known, i, cost, styles)
        paid = exchange(groups)
        yield "time_against_bytes", None if paid is None else _exchange(paid, styles)
    for name, sketch in _statistics(found):
        yield name, as_figure(sketch, styles)
    if each_method:
        for one in groups:
            for name, figure in of_method(one):
                yield f"{name}-{_plain(one.label)}", figure


def _statistics(found: Comparison) -> Iterator[tuple[str, Sketch]]:
    """The pictures of differences between methods, as far as there are any."""
    drawn = {
        "differences": differences([one for one in found.pairs if one.method == found.best]),
        "client_gains": client_gains([one for one in found.per_client if one.method == found.best]),
        "average_ranks": rank_plot(found.ranks) if found.ranks and found.ranks.tells else None,
    }
    yield from ((name, sketch) for name, sketch in drawn.items() if sketch is not None)


def write_rank_plot(found: Ranks, path: Path) -> Path:
    """The critical-difference plot of average ranks as one PNG or PDF file."""
    if path.suffix[1:] not in FORMATS:
        raise unknown(Code.FLAG_VALUE, "figures: format", path.suffix[1:], FORMATS)
    styles = styles_of((name, name) for name in found.average)
    return _save(as_figure(rank_plot(found), styles), path)


def _plain(label: str) -> str:
    """A method's label as a part of a file's name."""
    return "_".join(re.findall(r"[A-Za-z0-9.]+", label)) or "method"


def _trade_off(known: Sequence[Standing], i: int, cost: Cost, styles: dict[str, Style]) -> Figure:
    figure, plot = empty(cost.title)
    values = [one.costs[i] for one in known]
    shares = [one.accuracy for one in known]
    way = front(list(zip(values, shares, strict=True)))
    plot.step(
        [c for c, _ in way], [a for _, a in way], where="post", color="#59616b", linewidth=1, linestyle=(0, (4, 3))
    )
    bounds = []
    for one, value in zip(known, values, strict=True):
        style = _style(styles[one.row.method]) | {"linestyle": "-", "markersize": 8}
        std = (one.row.accuracy.std if one.row.accuracy else None) or 0.0
        bounds += [*within(one.accuracy - std, one.accuracy + std)]
        plot.errorbar([value], [one.accuracy], yerr=[std] if std else None, **style)
    _scaled(plot, "x", values, cost.kind, cost.label)
    _finish(plot, score_range(bounds), [(one.row.method, styles[one.row.method]) for one in known])
    return figure


def _exchange(found: Exchange, styles: dict[str, Style]) -> Figure:
    figure, plot = empty(exchange_title(found), 4.2 + 0.2 * len(found.paid))
    way = found.front
    plot.plot([b for b, _ in way], [s for _, s in way], color="#59616b", linewidth=1, linestyle=(0, (4, 3)))
    for points in found.paces.values():
        plot.plot([p.bytes for p in points], [p.seconds for p in points], color="#b5bcc5", linewidth=1)
    for one in found.paid:
        plot.plot([one.bytes], [one.seconds], **_style(styles[one.method]) | {"linestyle": "", "markersize": 8})
    _scaled(plot, "x", [one.bytes for one in found.paid], "B", "bytes sent up and down until then, all clients")
    _scaled(plot, "y", [one.seconds for one in found.paid], "s", "virtual time until then")
    _named(plot, [(one.method, styles[one.method]) for one in found.paid], below=True)
    return figure


def _scaled(plot: Axes, which: Literal["x", "y"], values: Sequence[float], kind: str, label: str) -> None:
    """One axis of costs: its ends, its ticks in units, and its label."""
    log, low, high, ticks = cost_axis(values, kind)
    margin = (high / low) ** 0.05 if log else (high - low) * 0.05
    axis = plot.xaxis if which == "x" else plot.yaxis
    bounds = (low / margin, high * margin) if log else (low - margin, high + margin)
    plot.set(**{f"{which}scale": "log" if log else "linear", f"{which}lim": bounds})
    axis.set_ticks([at for at, _ in ticks], labels=[name for _, name in ticks])
    axis.set_ticks([], minor=True)
    axis.set_label_text(label + (" (logarithmic)" if log else ""))


def _curves(groups: Sequence[Group], axis: Axis, styles: dict[str, Style]) -> Figure | None:
    drawn = sorted(curves(groups, axis), key=lambda one: -one.mean[-1])  # the legend as the curves end, best first
    if not drawn:
        return None
    figure, plot = empty(axis.title)
    log, low, high, ticks = axis_ticks(drawn, axis)
    drawn = above_zero(drawn) if log else drawn
    limit = line_of(groups, axis.name)
    if limit is not None and low <= limit.amount <= high:
        plot.axvline(limit.amount, color="#59616b", linewidth=1, linestyle=(0, (2, 2)))
        right = limit.amount > (low * high) ** 0.5 if log else limit.amount > (low + high) / 2
        plot.annotate(
            limit.label,
            (limit.amount, 1.0),
            (0, 4),  # above the axes, where neither curves nor the legend are
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="right" if right else "left",
            fontsize=8,
        )
    bounds = []
    for one in drawn:
        style = styles[one.label]
        std = one.std or [0.0] * len(one.x)
        lows, highs = zip(*(within(m - s, m + s) for m, s in zip(one.mean, std, strict=True)), strict=True)
        bounds += [*lows, *highs]
        if one.std is not None:
            plot.fill_between(one.x, lows, highs, color=style.colour, alpha=0.15, linewidth=0)
        plot.plot(one.x, one.mean, markevery=max(1, len(one.x) // 12), **_style(style))
    if log:
        plot.set_xscale("log")
    margin = (high / low) ** 0.02 if log else (high - low) * 0.02
    plot.set_xlim((low / margin, high * margin) if log else (low - (margin or 1), high + (margin or 1)))
    plot.set_xticks([at for at, _ in ticks], [name for _, name in ticks])
    plot.set_xticks([], minor=True)
    plot.set_xlabel(axis.label + (" (logarithmic)" if log else ""))
    _finish(plot, score_range(bounds), [(one.label, styles[one.label]) for one in drawn])
    return figure


def _clients(groups: Sequence[Group], styles: dict[str, Style]) -> Figure | None:
    drawn = {one.label: values for one in groups if (values := ranked(one))}
    if not drawn:
        return None
    figure, plot = empty(f"{words(capital=True)}{SORTED}")
    for label, values in drawn.items():
        style = _style(styles[label])
        if len(values) > MOST_DOTS:
            style["marker"] = ""
        plot.plot(range(1, len(values) + 1), values, **style)
    most = max(len(values) for values in drawn.values())
    plot.set_xticks([at for at in nice_ticks(1, most) if float(at).is_integer()])
    plot.set_xlabel("clients, from each method's worst to its best")
    _finish(
        plot,
        score_range([value for values in drawn.values() for value in values]),
        [(label, styles[label]) for label in drawn],
    )
    return figure


def _style(style: Style) -> dict[str, Any]:
    dash = [float(part) for part in style.dash.split()]
    return {
        "color": style.colour,
        "marker": MARKERS[style.marker],
        "markersize": 4.5,
        "linewidth": 1.6,
        "linestyle": (0, dash) if dash else "-",
    }


def empty(title: str, height: float = 4.4) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    plot = figure.add_subplot()
    plot.set_title(title, loc="left", fontsize=11, fontweight="bold")
    return figure, plot


def _finish(plot: Axes, shares: tuple[float, float], entries: Sequence[tuple[str, Style]]) -> None:
    low, high = shares
    ticks = nice_ticks(low, high)
    plot.set_ylim(low - 0.01 * (high - low), high + 0.01 * (high - low))
    plot.set_yticks(ticks, [score(at, 0) for at in ticks])
    label = words() if plot.get_title(loc="left").endswith(SORTED) else f"mean {words()}"
    plot.set_ylabel(f"{label} (better is higher up)" if metric().lower else label)
    _named(plot, entries)


def _named(plot: Axes, entries: Sequence[tuple[str, Style]], below: bool = False) -> None:
    """The grid, and the names of the methods, in the chart or `below` it."""
    plot.grid(axis="y", color="#d9dde2", linewidth=0.8)
    plot.set_axisbelow(True)
    for side in ("top", "right"):
        plot.spines[side].set_visible(False)
    handles = [Line2D([], [], **_style(style)) for _, style in entries]
    # A space first, because Matplotlib drops labels that begin with an underscore.
    names, place = [f" {label}" for label, _ in entries], {"frameon": False, "fontsize": 9}
    if below and plot.figure is not None:
        shown = plot.figure.legend(handles, names, loc="outside lower left", **place)
    else:
        shown = plot.legend(handles, names, loc="best", **place)
    for entry in shown.get_texts():
        entry.set_parse_math(False)  # a dollar in a setting is a dollar


def _save(figure: Figure, path: Path) -> Path:
    """The same figure gives the same bytes; letters in a PDF stay letters, so that they can be searched and changed."""
    data = io.BytesIO()
    metadata = _WITHOUT[path.suffix]
    fixed: dict[Any, Any] = {"pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "potluck"}
    with warnings.catch_warnings(), mpl.rc_context(fixed):
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # it is drawn as a box
        figure.savefig(data, format=path.suffix[1:], metadata=metadata)
    write_bytes(path, data.getvalue())
    return path
