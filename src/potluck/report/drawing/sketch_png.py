"""Render a sketch with Matplotlib, for PNG and PDF files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from potluck.report.drawing.sketch import Dot, Sketch, Stroke, Words
from potluck.report.drawing.styles import Style

PER_INCH = 82.0  # units of a sketch
INK, SOFT, LINE = "#1a1d21", "#59616b", "#d9dde2"
MARKERS = {"circle": "o", "square": "s", "diamond": "D", "up": "^", "down": "v", "plus": "P", "cross": "X"}
MARKERS |= {"left": "<", "right": ">", "star": "*", "hexagon": "h", "thin": "d"}
_STROKES: dict[str, dict[str, Any]] = {  # as in the page's style sheet
    "grid": {"color": LINE, "linewidth": 0.8},
    "tick": {"color": SOFT, "linewidth": 0.9},
    "leader": {"color": SOFT, "linewidth": 0.8},
    "zero": {"color": SOFT, "linewidth": 1.0, "linestyle": (0, (4, 3))},
    "whisker": {"linewidth": 1.5},
    "bar": {"linewidth": 6.5, "alpha": 0.28, "solid_capstyle": "butt"},
    "alike": {"color": INK, "linewidth": 4.0, "solid_capstyle": "round"},
    "median": {"color": INK, "linewidth": 1.8},
}
_DOTS = {"gain": "#0b6b46", "lose": "#c8102e", "tie": "#8b95a5"}
_STROKES |= {kind: {"color": colour, "linewidth": 2.8, "solid_capstyle": "butt"} for kind, colour in _DOTS.items()}
_ALIGN = {"start": "left", "middle": "center", "end": "right"}


def as_figure(sketch: Sketch, styles: Mapping[str, Style]) -> Figure:
    head, foot = 34.0, 26.0
    size = (sketch.width / PER_INCH, (sketch.height + head + foot) / PER_INCH)
    figure = Figure(figsize=size, dpi=150)
    FigureCanvasAgg(figure)
    plot = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    plot.set(xlim=(0, sketch.width), ylim=(sketch.height + foot, -head))
    plot.axis("off")
    plot.text(8, -14, sketch.title, fontsize=11, fontweight="bold", parse_math=False)
    plot.text(8, sketch.height + 14, sketch.note, fontsize=8, color=SOFT, parse_math=False)
    for order, one in enumerate(sketch.parts):
        if isinstance(one, Stroke):
            how = {**_colour(one.series, styles), **_STROKES[one.kind]}
            plot.plot([one.x1, one.x2], [one.y1, one.y2], zorder=order + 1, **how)
        elif isinstance(one, Dot):
            _dot(plot, one, styles, order + 1)
        else:
            _words(plot, one)
    return figure


def _dot(plot: Axes, one: Dot, styles: Mapping[str, Style], order: int) -> None:
    shape = "o" if one.kind or one.series is None else MARKERS[styles[one.series].marker]
    size = 2 * one.r * 72 / PER_INCH * 0.9
    colour = {"color": _DOTS[one.kind]} if one.kind in _DOTS else _colour(one.series, styles)
    alpha = 0.55 if one.kind == "seed" else 1.0
    plot.plot([one.x], [one.y], marker=shape, markersize=size, markeredgecolor="white", markeredgewidth=0.5,
              linestyle="none", alpha=alpha, zorder=order, **colour)  # fmt: skip


def _words(plot: Axes, one: Words) -> None:
    colour = INK if one.kind == "name" else SOFT
    plot.text(one.x, one.y, one.text, ha=_ALIGN[one.anchor], va="baseline", fontsize=9.5, color=colour,
              parse_math=False)  # fmt: skip


def _colour(series: str | None, styles: Mapping[str, Style]) -> dict[str, Any]:
    return {"color": INK if series is None else styles[series].colour}
