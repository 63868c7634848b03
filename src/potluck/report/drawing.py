"""Wide drawings over virtual time: an axis below, and an SVG that says in words what it shows."""

from __future__ import annotations

from collections.abc import Callable

from potluck.report.charts import nice_ticks
from potluck.report.markup import Html, tag
from potluck.units import scale

Place = Callable[[float], float]


def drawing(parts: list[Html], width: float, height: float, label: str) -> Html:
    return tag("svg", parts, class_="chart", viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=label)


def time_axis(low: float, high: float, left: float, right: float, bottom: float) -> tuple[Place, list[Html]]:
    """Where a moment of virtual time lies, and the axis with its ticks."""
    span = (high - low) or 1.0

    def x(at: float) -> float:
        return left + (at - low) / span * (right - left)

    divisor, symbol = scale("s", high)
    parts = [tag("line", x1=left, x2=right, y1=bottom, y2=bottom, class_="tick")]
    for tick in nice_ticks(low / divisor, high / divisor, 8):
        at = x(tick * divisor)
        parts.append(tag("line", x1=f"{at:.1f}", x2=f"{at:.1f}", y1=bottom, y2=bottom + 5, class_="tick"))
        parts.append(tag("text", f"{tick:,.10g} {symbol}", x=f"{at:.1f}", y=bottom + 19, text_anchor="middle"))
    parts.append(tag("text", "virtual time", x=(left + right) / 2, y=bottom + 37, text_anchor="middle", class_="label"))
    return x, parts
