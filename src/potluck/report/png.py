"""The charts of the report as PNG files, with the same names, units and looks."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from potluck.errors import BadInput
from potluck.report.charts import MOST_DOTS, axis_ticks, nice_ticks, share_range
from potluck.report.curves import AXES, Axis, client_lines, curves
from potluck.report.groups import Group, group
from potluck.report.looks import Look, looks
from potluck.report.units import percent
from potluck.runs.files import write_bytes
from potluck.runs.results import Run

_MARKERS = {"circle": "o", "square": "s", "diamond": "D", "up": "^", "down": "v"}
_FILES = {"round": "rounds", "virtual": "time", "bytes": "bytes", "joules": "joules"}


def figures(runs: Sequence[Run], folder: Path) -> list[Path]:
    """accuracy_by_{rounds,time,bytes,joules}.png and accuracy_of_clients.png; none where nothing was evaluated."""
    groups = group(runs).groups
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"figures: {str(folder)!r} cannot hold them ({error.strerror or error}).") from None
    look = looks((one.label, one.method) for one in groups)
    made = []
    for axis in AXES:
        figure = _curves(groups, axis, look)
        if figure is not None:
            made.append(_save(figure, folder / f"accuracy_by_{_FILES[axis.name]}.png"))
    figure = _clients(groups, look)
    if figure is not None:
        made.append(_save(figure, folder / "accuracy_of_clients.png"))
    return made


def _curves(groups: Sequence[Group], axis: Axis, looks: dict[str, Look]) -> Figure | None:
    drawn = curves(groups, axis)
    if not drawn:
        return None
    figure, plot = _empty(axis.title)
    log, low, high, ticks = axis_ticks(drawn, axis)
    bounds = []
    for one in drawn:
        look = looks[one.label]
        std = one.std or [0.0] * len(one.x)
        lows = [max(0.0, m - s) for m, s in zip(one.mean, std, strict=True)]
        highs = [min(1.0, m + s) for m, s in zip(one.mean, std, strict=True)]
        bounds += lows + highs
        if one.std is not None:
            plot.fill_between(one.x, lows, highs, color=look.light, alpha=0.15, linewidth=0)
        plot.plot(one.x, one.mean, markevery=max(1, len(one.x) // 12), **_style(look))
    if log:
        plot.set_xscale("log")
    margin = (high / low) ** 0.02 if log else (high - low) * 0.02
    plot.set_xlim((low / margin, high * margin) if log else (low - (margin or 1), high + (margin or 1)))
    plot.set_xticks([at for at, _ in ticks], [name for _, name in ticks])
    plot.set_xticks([], minor=True)
    plot.set_xlabel(axis.label + (" (logarithmic)" if log else ""))
    _finish(plot, share_range(bounds), [(one.label, looks[one.label]) for one in drawn])
    return figure


def _clients(groups: Sequence[Group], looks: dict[str, Look]) -> Figure | None:
    lines = client_lines(groups, None)
    found = {
        one.label: sorted(line.accuracy[one.label] for line in lines if one.label in line.accuracy) for one in groups
    }
    drawn = {label: values for label, values in found.items() if values}
    if not drawn:
        return None
    figure, plot = _empty("Accuracy of every client, sorted")
    for label, values in drawn.items():
        style = _style(looks[label])
        if len(values) > MOST_DOTS:
            style["marker"] = ""
        plot.plot(range(1, len(values) + 1), values, **style)
    most = max(len(values) for values in drawn.values())
    plot.set_xticks([at for at in nice_ticks(1, most) if float(at).is_integer()])
    plot.set_xlabel("clients, from each method's worst to its best")
    _finish(
        plot,
        share_range([value for values in drawn.values() for value in values]),
        [(label, looks[label]) for label in drawn],
    )
    return figure


def _style(look: Look) -> dict[str, Any]:
    dash = [float(part) for part in look.dash.split()]
    return {
        "color": look.light,
        "marker": _MARKERS[look.marker],
        "markersize": 4.5,
        "linewidth": 1.6,
        "linestyle": (0, dash) if dash else "-",
    }


def _empty(title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7, 4.4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    plot = figure.add_subplot()
    plot.set_title(title, loc="left", fontsize=11, fontweight="bold")
    return figure, plot


def _finish(plot: Axes, shares: tuple[float, float], entries: Sequence[tuple[str, Look]]) -> None:
    low, high = shares
    ticks = nice_ticks(low, high)
    plot.set_ylim(low - 0.01 * (high - low), high + 0.01 * (high - low))
    plot.set_yticks(ticks, [percent(at, 0) for at in ticks])
    plot.set_ylabel("mean accuracy" if plot.get_title(loc="left") != "Accuracy of every client, sorted" else "accuracy")
    plot.grid(axis="y", color="#d9dde2", linewidth=0.8)
    plot.set_axisbelow(True)
    for side in ("top", "right"):
        plot.spines[side].set_visible(False)
    handles = [Line2D([], [], **_style(look)) for _, look in entries]
    # A space first, because Matplotlib drops labels that begin with an underscore.
    shown = plot.legend(handles, [f" {label}" for label, _ in entries], frameon=False, fontsize=9, loc="best")
    for entry in shown.get_texts():
        entry.set_parse_math(False)  # a dollar in a setting is a dollar


def _save(figure: Figure, path: Path) -> Path:
    data = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # it is drawn as a box
        figure.savefig(data, format="png", metadata={"Software": None})
    write_bytes(path, data.getvalue())
    return path
