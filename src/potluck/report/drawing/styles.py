"""How each method is drawn, the same in every chart and on paper: a colour, a marker and a dash.

A method has the same colour on white and in dark mode. The six hues and the grey stand out from both pages, and differ
enough under simulated protanopia, deuteranopia and tritanopia (test_styles.py measures it). Without colour the marker
distinguishes methods.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from potluck.report.figures.sentence import ALONE, POOLED

COLOURS = ("#4893EA", "#DD4216", "#248E1A", "#A432F8", "#837047", "#AC409B")
GREY = "#7A828E"  # for the baselines local and centralised
MARKERS = ("circle", "square", "diamond", "up", "down", "plus", "cross", "star", "hexagon", "thin")
GREY_MARKERS = ("left", "right")
DASHES = ("", "6 3", "2 3")


@dataclass(frozen=True)
class Style:
    hue: int  # index into the colours; -1 for grey
    marker: str
    dash: str

    @property
    def colour(self) -> str:
        return GREY if self.hue < 0 else COLOURS[self.hue]

    @property
    def css(self) -> str:
        """The classes of the page's style sheet."""
        return f"h{'g' if self.hue < 0 else self.hue} {self.marker}"


def styles_of(methods: Iterable[tuple[str, str]]) -> dict[str, Style]:
    """Styles by label, from (label, method name); the order of the methods does not matter."""
    found: dict[str, Style] = {}
    plain = grey = 0
    for label, name in sorted(methods):
        if name in (ALONE, POOLED):
            found[label] = Style(-1, GREY_MARKERS[grey % len(GREY_MARKERS)], "6 3" if name == POOLED else "")
            grey += 1
        else:
            found[label] = Style(
                plain % len(COLOURS), MARKERS[plain % len(MARKERS)], DASHES[plain // len(COLOURS) % len(DASHES)]
            )
            plain += 1
    return found
