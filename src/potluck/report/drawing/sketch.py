"""A drawing as strokes, dots and words: laid out once, rendered as SVG here and with Matplotlib by `sketch_png`.

Coordinates are those of an SVG: from the top left corner; a unit is a CSS pixel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from potluck.report.drawing.axes import svg
from potluck.report.drawing.markers import marker
from potluck.report.drawing.styles import Style
from potluck.report.markup import Html, tag

LETTER = 7.0  # about the width of a letter
LONGEST = 26  # letters of a method's name


@dataclass(frozen=True)
class Stroke:
    """A line; `kind` is a class of the page's style sheet. A series gives it the colour of a method."""

    x1: float
    y1: float
    x2: float
    y2: float
    kind: str
    series: str | None = None


@dataclass(frozen=True)
class Dot:
    """A mark with a hint: the marker of a method, or a plain circle if there is a kind."""

    x: float
    y: float
    hint: str
    series: str | None = None
    kind: str = ""
    r: float = 5.0


@dataclass(frozen=True)
class Words:
    x: float
    y: float  # of the baseline
    text: str
    anchor: str = "start"
    kind: str = ""
    series: str | None = None


Part = Stroke | Dot | Words


@dataclass(frozen=True)
class Sketch:
    width: float
    height: float
    title: str
    note: str  # what the marks mean
    said: str  # the picture in words, for a screen reader
    parts: tuple[Part, ...]


def as_svg(sketch: Sketch, styles: Mapping[str, Style]) -> Html:
    drawn = [_part(one, styles) for one in sketch.parts]
    return svg(drawn, f"{sketch.title}. {sketch.said}", sketch.width, sketch.height)


def _part(one: Part, styles: Mapping[str, Style]) -> Html:
    inside = _inside(one, styles)
    if one.series is None or isinstance(one, Words):
        return inside
    return tag("g", inside, class_=styles[one.series].css, data_series=one.series)


def _inside(one: Part, styles: Mapping[str, Style]) -> Html:
    if isinstance(one, Stroke):
        ends = {"x1": one.x1, "y1": one.y1, "x2": one.x2, "y2": one.y2}
        return tag("line", **{name: f"{value:.1f}" for name, value in ends.items()}, class_=one.kind)
    if isinstance(one, Words):
        at = {"x": f"{one.x:.1f}", "y": f"{one.y:.1f}"}
        return tag("text", one.text, text_anchor=one.anchor, class_=one.kind or None, data_series=one.series, **at)
    if one.series is not None and not one.kind:
        return marker(styles[one.series], one.x, one.y, one.hint, one.r)
    return tag("circle", tag("title", one.hint), cx=f"{one.x:.1f}", cy=f"{one.y:.1f}", r=one.r, class_=one.kind)


def short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
