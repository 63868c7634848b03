"""The sign of each method: its marker on charts, and the small line with a marker in legends and tables."""

from __future__ import annotations

from math import cos, pi, sin

from potluck.report.drawing.styles import Style
from potluck.report.markup import Html, tag

_PLUS = (
    *((-0.5, -1.3), (0.5, -1.3), (0.5, -0.5), (1.3, -0.5)),
    *((1.3, 0.5), (0.5, 0.5), (0.5, 1.3), (-0.5, 1.3)),
    *((-0.5, 0.5), (-1.3, 0.5), (-1.3, -0.5), (-0.5, -0.5)),
)
_STAR = [(r * sin(pi * k / 5), -r * cos(pi * k / 5)) for k in range(10) for r in [1.5 if k % 2 == 0 else 0.63]]


def marker(style: Style, x: float, y: float, title: str | None = None, r: float = 3.6) -> Html:
    hint = tag("title", title) if title else None
    if style.marker == "circle":
        return tag("circle", hint, cx=f"{x:.1f}", cy=f"{y:.1f}", r=r, class_="dot")
    corners = {
        "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
        "diamond": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
        "up": ((0, -1.2), (1.2, 1), (-1.2, 1)),
        "down": ((0, 1.2), (1.2, -1), (-1.2, -1)),
        "left": ((-1.2, 0), (1, -1.2), (1, 1.2)),
        "right": ((1.2, 0), (-1, -1.2), (-1, 1.2)),
        "plus": _PLUS,
        "star": _STAR,
        "hexagon": [(1.15 * cos(pi * k / 3), 1.15 * sin(pi * k / 3)) for k in range(6)],
        "thin": ((0, -1.5), (0.75, 0), (0, 1.5), (-0.75, 0)),
        "cross": [((a - b) * 0.71, (a + b) * 0.71) for a, b in _PLUS],
    }[style.marker]
    return tag("polygon", hint, points=" ".join(f"{x + r * a:.1f},{y + r * b:.1f}" for a, b in corners), class_="dot")


def key(style: Style) -> Html:
    """The marker of a method on a short line, for legends and tables."""
    line = tag("line", x1=0, y1=7, x2=26, y2=7, class_="line", stroke_dasharray=style.dash or None)
    inside = tag("g", line, marker(style, 13, 7), class_=style.css)
    return tag("svg", inside, class_="key", viewBox="0 0 26 14", width=26, height=14, aria_hidden="true")
